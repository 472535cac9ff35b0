//! Values as documents hold them: as the mapping asks, with nothing lost on the way.

use serde_json::{Value, json};
use vitrina_testbed::SearchServer;

use crate::shelf::Shelf;

/// The only document of a query, with its derived or given mapping.
async fn document(server: &SearchServer, select: &str, definition: Value) -> (Shelf, Value) {
    let shelf = Shelf::bare(server, 1).await;
    shelf.describe(definition).await;
    let id = shelf.pipeline(json!({"source_query": format!("select id, {select} from content.film")})).await;
    shelf.succeed(id).await;
    let document = shelf.documents().await.remove("1").unwrap();
    (shelf, document)
}

#[tokio::test]
async fn every_type_has_its_form_in_a_document() {
    for server in SearchServer::both().await {
        let select = "true as yes, 7::smallint as small, 12345678901::bigint as big, 0.1::real as little, 2.5::float8 as double,
            12345678901234567890.123456789::numeric as exact, 'Пять \"звёзд\" \\ и ещё' as text, 'x'::varchar(5) as short,
            '\\x00ff'::bytea as bytes, date '2024-02-29' as day, time '01:02:03.5' as clock,
            timestamp '2024-02-29 12:30:00.000001' as local, timestamptz '2024-02-29 12:30:00+03' as instant,
            interval '1 month 2 days 3.5 seconds' as span, 'b3b5b1c0-0000-4000-8000-000000000001'::uuid as code,
            '{\"a\": [1, null, {\"b\": \"c\"}]}'::jsonb as facts, null::int as nothing,
            array[1, null, 3] as numbers, '{}'::text[] as empty, array['a', 'b'] as words, '10.0.0.1'::inet as address";
        let (shelf, document) = document(&server, select, json!({})).await;
        assert_eq!(
            document,
            json!({"id": 1, "yes": true, "small": 7, "big": 12_345_678_901_i64, "little": 0.1, "double": 2.5,
                "exact": 12_345_678_901_234_567_890.123_456_789_f64, "text": "Пять \"звёзд\" \\ и ещё", "short": "x",
                "bytes": "AP8=", "day": "2024-02-29", "clock": "01:02:03.5", "local": "2024-02-29T12:30:00.000001",
                "instant": "2024-02-29T09:30:00Z", "span": "P1M2DT3.5S", "code": "b3b5b1c0-0000-4000-8000-000000000001",
                "facts": {"a": [1, null, {"b": "c"}]}, "nothing": null, "numbers": [1, null, 3], "empty": [],
                "words": ["a", "b"], "address": "10.0.0.1/32"})
        );
        let raw = shelf.server().search(&shelf.index, json!({"query": {"range": {"instant": {"gte": "2024-02-29T09:30:00Z", "lte": "2024-02-29T09:30:00Z"}}}})).await;
        assert_eq!(raw["hits"]["total"]["value"], 1);
    }
}

#[tokio::test]
async fn numbers_are_text_where_the_mapping_says_keyword() {
    for server in SearchServer::both().await {
        let mapping = json!({"properties": {"id": {"type": "keyword"}, "big": {"type": "keyword"}, "exact": {"type": "keyword"}}});
        let select = "9007199254740993::bigint as big, 0.1000::numeric as exact";
        let (_shelf, document) = document(&server, select, json!({"mapping": mapping})).await;
        assert_eq!(document, json!({"id": "1", "big": "9007199254740993", "exact": "0.1000"}));
    }
}

#[tokio::test]
async fn json_columns_become_nested_documents() {
    for server in SearchServer::both().await {
        let mapping = json!({"properties": {"id": {"type": "integer"}, "persons": {"type": "nested", "properties": {
            "name": {"type": "text"}, "role": {"type": "keyword"}}}}});
        let select = "'[{\"name\": \"Anna\", \"role\": \"actor\"},\n {\"name\": \"Boris\", \"role\": \"director\"}]'::json as persons";
        let (shelf, _) = document(&server, select, json!({"mapping": mapping})).await;
        let asked = |name: &str, role: &str| {
            json!({"query": {"nested": {"path": "persons", "query": {"bool": {"must": [
            {"match": {"persons.name": name}}, {"term": {"persons.role": role}}]}}}}})
        };
        let hits = async |name: &str, role: &str| {
            shelf.server().search(&shelf.index, asked(name, role)).await["hits"]["total"]["value"].clone()
        };
        assert_eq!(hits("anna", "actor").await, 1);
        assert_eq!(hits("anna", "director").await, 0);
    }
}
