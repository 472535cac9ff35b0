//! One search in Russian and one in English, in other forms of the words than the titles have.

use anyhow::Result;
use reqwest::Method;
use serde_json::{Value, json};

use super::Server;
use crate::output::{grouped, print};

const SEARCHES: [&str; 2] = ["песни северных морей", "the returns of the jedis"];
const SHOWN: usize = 3;

pub(super) async fn search(server: &Server) -> Result<()> {
    // Equal hits have an order of their own, the same every time.
    let order = json!(["_score", "title.raw", "id"]);
    for words in SEARCHES {
        let query = json!({"multi_match": {"query": words, "fields": ["title^3", "description"]}});
        let shown = json!(["title", "creation_date", "genres"]);
        let body =
            json!({"size": SHOWN, "track_total_hits": true, "query": query, "sort": order, "_source": shown});
        let found = server.ask(Method::POST, &["movies", "_search"], Some(&body)).await?;
        let hits = found["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        let total = grouped(found["hits"]["total"]["value"].as_u64().unwrap_or_default());
        print(&format!("es:movies, searched for {words:?}: {total} hits, the best of them"));
        hits.iter().for_each(|hit| print(&format!("  {}", film(&hit["_source"]))));
    }
    Ok(())
}

/// `Voyage to the Frozen Planet (1974), Drama, War`
fn film(found: &Value) -> String {
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    let year = text("creation_date").split('-').next().filter(|year| !year.is_empty());
    let year = year.map(|year| format!(" ({year})")).unwrap_or_default();
    let genres = found["genres"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let genres: String = genres.map(|genre| format!(", {genre}")).collect();
    format!("{}{year}{genres}", text("title"))
}
