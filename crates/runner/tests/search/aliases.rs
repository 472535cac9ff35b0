//! Aliases that people or a target's definition put on an index: they go with what readers see.

use serde_json::{Value, json};
use vitrina_core::{Level, Mode, OnActive, PipelineId, RunStatus, Status};
use vitrina_store::RunRequest;
use vitrina_testbed::{Fault, FaultProxy, Gate, SearchServer};

use crate::shelf::Shelf;

impl Shelf {
    async fn add_alias(&self, alias: &str, options: Value) {
        let mut action = json!({"index": self.behind().await.remove(0), "alias": alias});
        for (name, value) in options.as_object().unwrap() {
            action[name] = value.clone();
        }
        let (status, answer) =
            self.server().call("POST", "_aliases", json!({"actions": [{"add": action}]})).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// The index behind an alias, and what the alias says.
    async fn alias(&self, alias: &str) -> (String, Value) {
        let found = self.server().get(&format!("_alias/{alias}")).await;
        let found = found.as_object().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let (index, told) = found.iter().next().unwrap();
        (index.clone(), told["aliases"][alias].clone())
    }

    /// Ids that readers find behind an alias.
    async fn found_by(&self, alias: &str) -> Vec<String> {
        self.server().refresh(alias).await;
        let found = self.server().search(alias, json!({"size": 100})).await;
        let hits = found["hits"]["hits"].as_array().unwrap().iter();
        let mut ids: Vec<String> = hits.map(|hit| hit["_id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    }

    async fn roll_back(&self, id: PipelineId) {
        let request = RunRequest { rollback: true, ..RunRequest::default() };
        let run = self.stage.store.request_run(id, OnActive::Reject, &request).await.unwrap().run.unwrap();
        self.work_off("tester").await;
        assert_eq!(self.stage.run_record(run).await.status, RunStatus::Success);
    }
}

#[tokio::test]
async fn aliases_that_people_have_put_on_an_index_go_with_a_swap_and_back_with_a_rollback() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let public = shelf.indexes.name("public");
        let filter = json!({"range": {"id": {"lte": 2}}});
        shelf.add_alias(&public, json!({"filter": filter, "search_routing": "a"})).await;
        let before = shelf.alias(&public).await;
        for _ in 0..3 {
            shelf.succeed(id).await;
            let (index, options) = shelf.alias(&public).await;
            assert_eq!((index, &options), (shelf.behind().await.remove(0), &before.1));
        }
        shelf.roll_back(id).await;
        assert_eq!(shelf.alias(&public).await, (shelf.behind().await.remove(0), before.1));
    }
}

#[tokio::test]
async fn a_filter_that_people_have_put_on_the_name_of_an_index_hides_as_much_after_a_swap() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let name = shelf.index.clone();
        shelf.add_alias(&name, json!({"filter": {"range": {"id": {"lte": 2}}}})).await;
        assert_eq!(shelf.found_by(&name).await, ["1", "2"]);
        shelf.succeed(id).await;
        assert_eq!(shelf.found_by(&name).await, ["1", "2"]);
    }
}

#[tokio::test]
async fn aliases_of_the_target_are_set_in_the_swap_and_go_when_they_are_withdrawn() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let (adult, all) = (shelf.indexes.name("adult"), shelf.indexes.name("all"));
        let declared = json!({&adult: {"filter": {"range": {"id": {"gte": 4}}}, "routing": "x"}, &all: {}});
        shelf.describe(json!({"document": {"aliases": declared}})).await;
        let id = shelf.full(10).await;
        for _ in 0..2 {
            shelf.succeed(id).await;
            assert_eq!(shelf.found_by(&all).await.len(), 5);
            let (index, told) = shelf.alias(&adult).await;
            assert_eq!(index, shelf.behind().await.remove(0));
            assert_eq!((&told["index_routing"], &told["search_routing"]), (&json!("x"), &json!("x")));
            assert_eq!(told["filter"], json!({"range": {"id": {"gte": 4}}}));
        }
        shelf.describe(json!({"document": {"aliases": {&all: {"filter": {"term": {"id": 1}}}}}})).await;
        shelf.succeed(id).await;
        assert_eq!(shelf.found_by(&all).await, ["1"]);
        let (status, _) = shelf.server().call("GET", &format!("_alias/{adult}"), Value::Null).await;
        assert_eq!(status, 404, "it was the target's, and is withdrawn");
    }
}

#[tokio::test]
async fn a_further_name_that_others_use_is_refused_and_their_readers_find_what_they_found() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let (index, alias, stray) =
            (shelf.indexes.name("index"), shelf.indexes.name("alias"), shelf.indexes.name("stray"));
        shelf.server().call("PUT", &index, json!({})).await;
        shelf.server().call("PUT", &stray, json!({"aliases": {&alias: {}}})).await;
        let other = Shelf::new(&server, 3).await;
        let id_of_other = other.full(10).await;
        other.succeed(id_of_other).await;
        let id = shelf.full(10).await;
        let (whole, partial, take_over) = (json!({}), json!({"partial": true}), json!({"take_over": true}));
        let declared =
            [(&index, &whole), (&alias, &take_over), (&other.index, &partial), (&other.index, &whole)];
        for (name, document) in declared {
            let mut document = document.clone();
            document["aliases"] = json!({name: {}});
            shelf.describe(json!({"document": document})).await;
            let (code, message) = shelf.fail(id).await;
            assert_eq!(code, "sink.alias_taken", "{message}");
            assert!(message.contains(name.as_str()), "{message}");
            assert_eq!(shelf.behind().await, Vec::<String>::new());
        }
        assert_eq!(other.found_by(&other.index).await.len(), 3);
        other.succeed(id_of_other).await;
    }
}

#[tokio::test]
async fn a_further_name_that_comes_into_use_while_a_load_goes_on_is_refused() {
    for server in SearchServer::both().await {
        let proxy = FaultProxy::before(&server).await;
        let shelf = Shelf::bare(&server, 5).await.at(proxy.url());
        let (alias, stray) = (shelf.indexes.name("alias"), shelf.indexes.name("stray"));
        shelf.describe(json!({"document": {"aliases": {&alias: {}}}})).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let before = shelf.behind().await;
        let gate = Gate::new();
        proxy.play(1, "_bulk", Fault::Hold(gate.clone()));
        let run = shelf.stage.request(id).await;
        let (mut runner, _stop) = shelf.stage.start(shelf.settings("one"));
        gate.arrived().await;
        shelf.server().call("PUT", &stray, json!({"aliases": {&alias: {}}})).await;
        gate.open();
        shelf.stage.reaches(id, Status::Failed).await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.error_code.as_deref(), Some("sink.alias_taken"), "{:?}", run.error);
        assert_eq!(shelf.behind().await, before, "readers see what they saw");
        runner.abort_all();
    }
}

#[tokio::test]
async fn a_further_name_that_two_targets_declare_is_of_both() {
    for server in SearchServer::both().await {
        let (one, two) = (Shelf::bare(&server, 3).await, Shelf::bare(&server, 5).await);
        let all = one.indexes.name("all");
        for shelf in [&one, &two] {
            shelf.describe(json!({"document": {"aliases": {&all: {}}}})).await;
        }
        let (of_one, of_two) = (one.full(10).await, two.full(10).await);
        for _ in 0..2 {
            one.succeed(of_one).await;
            two.succeed(of_two).await;
        }
        assert_eq!(one.found_by(&all).await.len(), 8);
    }
}

#[tokio::test]
async fn settings_that_an_index_template_gives_outlive_a_load() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let settings = json!({"index": {"refresh_interval": "7s", "number_of_replicas": 2, "gc_deletes": "2h",
            "max_result_window": 12_345}});
        let pattern = format!("vitrina-{}-*", shelf.index);
        let template =
            json!({"index_patterns": [pattern], "template": {"settings": settings}, "priority": 500});
        let path = format!("_index_template/{}", shelf.index);
        assert_eq!(shelf.server().call("PUT", &path, template).await.0, 200);
        let id = shelf.full(2).await;
        shelf.succeed(id).await;
        let index = shelf.behind().await.remove(0);
        let found = shelf.server().get(&format!("{index}/_settings")).await;
        let found = &found[&index]["settings"]["index"];
        let of = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            (of("refresh_interval"), of("number_of_replicas"), of("gc_deletes"), of("max_result_window")),
            ("7s".to_owned(), "2".to_owned(), "2h".to_owned(), "12345".to_owned())
        );
        shelf.server().call("DELETE", &path, Value::Null).await;
    }
}

/// Its source lacks what the index holds: copied, it would be another document.
#[tokio::test]
async fn a_document_whose_source_is_filtered_is_not_carried_over() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        let mapping = json!({"_source": {"excludes": ["title"]}, "properties": {"id": {"type": "integer"},
            "title": {"type": "keyword"}, "rating": {"type": "integer"}, "modified": {"type": "date"}}});
        shelf.describe(json!({"mapping": mapping})).await;
        let query = "select id, title, case when id = 4 and title = 'bad' then 'x' else '1' end as rating, modified from content.film";
        let id = shelf.pipeline(json!({"source_query": query, "reject_limit": 5, "delete_limit": 1})).await;
        shelf.succeed(id).await;
        shelf.stage.db.execute("update content.film set title = 'bad' where id = 4").await;
        let run = shelf.succeed(id).await;
        assert_eq!(run.rows_rejected, 1);
        assert_eq!(shelf.found_by(&shelf.index).await, ["1", "2", "3", "5"], "rather none than a part of it");
    }
}

#[tokio::test]
async fn addresses_and_points_fit_fields_of_these_types() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 1).await;
        let mapping = json!({"properties": {"id": {"type": "integer"}, "host": {"type": "ip"},
            "net": {"type": "ip_range"}, "place": {"type": "geo_point"}, "text": {"type": "keyword"}}});
        shelf.describe(json!({"mapping": mapping})).await;
        let query =
            "select id, inet '10.1.2.3' as host, cidr '10.0.0.0/8' as net, point '(37.6,55.7)' as place,
            inet '10.1.2.3' as text from content.film";
        let id = shelf.pipeline(json!({"source_query": query})).await;
        shelf.succeed(id).await;
        let near = json!({"query": {"bool": {"filter": [{"term": {"host": "10.1.0.0/16"}},
            {"term": {"net": "10.9.9.9"}},
            {"geo_distance": {"distance": "1km", "place": {"lat": 55.7, "lon": 37.6}}}]}}});
        shelf.server().refresh(&shelf.index).await;
        let found = shelf.server().search(&shelf.index, near).await;
        assert_eq!(found["hits"]["hits"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(
            found["hits"]["hits"][0]["_source"]["text"], "10.1.2.3/32",
            "text is as the database writes it"
        );
    }
}

impl Shelf {
    /// An index of somebody else with a film that is not ours, under the name that our readers search.
    async fn put_beside(&self, index: &str, alias: Value) -> String {
        let theirs = self.indexes.name(index);
        let path = format!("{theirs}/_doc/mine?refresh=true");
        assert_eq!(self.server().call("PUT", &path, json!({"mine": true})).await.0, 201);
        let mut action = json!({"index": theirs, "alias": self.index});
        action.as_object_mut().unwrap().extend(alias.as_object().unwrap().clone());
        let actions = json!({"actions": [{"add": action}]});
        assert_eq!(self.server().call("POST", "_aliases", actions).await.0, 200);
        theirs
    }

    async fn is_untouched(&self, theirs: &str) {
        let mine = self.server().document(theirs, "mine").await.unwrap();
        assert_eq!(mine["_source"], json!({"mine": true}));
        self.server().refresh(theirs).await;
        let found = self.server().search(theirs, json!({"size": 10})).await;
        assert_eq!(found["hits"]["hits"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_filter_of_somebody_else_is_neither_laid_over_an_index_nor_dropped_without_a_word() {
    for server in SearchServer::both().await {
        for rules in [json!({"filter": {"term": {"mine": true}}}), json!({"search_routing": "a"})] {
            let shelf = Shelf::bare(&server, 5).await;
            shelf.describe(json!({"document": {"take_over": true}})).await;
            let theirs = shelf.put_beside("theirs", rules.clone()).await;
            let other = shelf.put_beside("other", json!({})).await;
            let id = shelf.full(10).await;
            let (code, message) = shelf.fail(id).await;
            assert_eq!(code, "sink.alias_rules", "{message}");
            let rule = rules.as_object().unwrap().keys().next().unwrap();
            assert!(message.contains(rule) && message.contains(&theirs), "{message}");
            assert_eq!(shelf.behind().await.len(), 2, "as it was");
            // As the message says.
            let (start, end) = (message.find("{\"actions\"").unwrap(), message.find("]}.").unwrap());
            let actions: Value = serde_json::from_str(&message[start..end + 2]).unwrap();
            assert_eq!(shelf.server().call("POST", "_aliases", actions).await.0, 200);
            shelf.succeed(id).await;
            shelf.assert_true().await;
            shelf.is_untouched(&theirs).await;
            shelf.is_untouched(&other).await;
        }
    }
}

#[tokio::test]
async fn an_index_that_somebody_has_put_under_the_same_name_loses_that_with_consent_and_nothing_else() {
    for server in SearchServer::both().await {
        let shelf = Shelf::new(&server, 5).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        let ours = shelf.behind().await.remove(0);
        let theirs = shelf.put_beside("theirs", json!({})).await;
        let (code, message) = shelf.fail(id).await;
        assert_eq!(code, "sink.name_taken", "{message}");
        assert!(message.contains(&theirs) && message.contains("take_over"), "{message}");
        let start = message.find("{\"actions\"").unwrap();
        assert!(message[start..].contains("remove"), "{message}");
        let compared = shelf.stage.request_reconcile(id, Level::Rows).await;
        shelf.work_off("tester").await;
        let compared = shelf.stage.store.reconcile(compared).await.unwrap().unwrap();
        let told = compared.error.unwrap_or_default();
        assert!(told.contains(&theirs), "{told}");
        shelf.describe(json!({"document": {"take_over": true}})).await;
        let run = shelf.stage.request_mode(id, Mode::Full).await;
        shelf.work_off("tester").await;
        let run = shelf.stage.run_record(run).await;
        assert_eq!(run.status, RunStatus::Success, "{:?}", run.error);
        shelf.assert_true().await;
        assert_eq!(shelf.behind().await.len(), 1);
        shelf.is_untouched(&theirs).await;
        shelf.roll_back(id).await;
        assert_eq!(shelf.behind().await, [ours], "what readers saw before is kept");
        let later = shelf.put_beside("later", json!({})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        shelf.is_untouched(&later).await;
    }
}

#[tokio::test]
async fn a_full_load_takes_the_name_from_an_index_that_was_put_beside_it_and_holds_its_limits() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 20).await;
        shelf.describe(json!({"document": {"take_over": true}})).await;
        let id = shelf.full(10).await;
        shelf.succeed(id).await;
        let theirs = shelf.put_beside("theirs", json!({})).await;
        shelf.stage.db.execute("delete from content.film where id > 2").await;
        assert_eq!(shelf.fail(id).await.0, "sink.delete_limit");
        shelf.stage.add_films(3, 20).await;
        shelf.succeed(id).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        shelf.is_untouched(&theirs).await;
    }
}

#[tokio::test]
async fn an_index_that_is_shared_by_fields_gets_its_name_with_consent() {
    for server in SearchServer::both().await {
        let shelf = Shelf::bare(&server, 5).await;
        shelf.describe(json!({"document": {"partial": true, "take_over": true}})).await;
        let theirs = shelf.put_beside("theirs", json!({})).await;
        let id = shelf.incremental(10).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        let later = shelf.put_beside("later", json!({})).await;
        shelf.succeed(id).await;
        shelf.assert_true().await;
        shelf.is_untouched(&theirs).await;
        shelf.is_untouched(&later).await;
    }
}
