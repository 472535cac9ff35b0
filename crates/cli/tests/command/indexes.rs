//! The cinema's indexes, out of their files alone: validated, applied and run by the binary, then searched.

use serde_json::{Value, json};
use vitrina_cinema::INDEX_PIPELINES;
use vitrina_testbed::{Database, Indexes, SearchServer};

use super::{Running, Vitrina, vitrina};

/// A small cinema, and a server on which its indexes have names of this test.
struct Cinema {
    db: Database,
    api: String,
    indexes: Indexes,
    _up: Running,
}

impl Cinema {
    async fn new(server: &SearchServer) -> Self {
        let db = Database::fresh().await;
        vitrina_cinema::migrate(db.url()).await.unwrap();
        vitrina_cinema::seed(db.url(), 300, 2000).await.unwrap();
        let up = vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("ELASTICSEARCH_URL", server.url());
        let mut up = with_database(up, &db).start();
        Self { api: format!("http://{}", up.is_up()), db, indexes: server.indexes(), _up: up }
    }

    /// A command beside the three files.
    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        let command = with_database(vitrina(arguments), &self.db).variable("VITRINA_API_URL", &self.api);
        INDEX_PIPELINES.iter().fold(command, |command, (name, text)| {
            let text = text
                .replace("es:film", &format!("es:{}", self.index("film")))
                .replace("es:movies", &format!("es:{}", self.index("movies")));
            command.file(&format!("{name}.yaml"), &text)
        })
    }

    fn index(&self, name: &str) -> String {
        self.indexes.name(name)
    }

    /// A run that begins now: one of the schedule may be under way, and have begun before what it is to see.
    fn run(&self, pipeline: &str) -> String {
        self.vitrina(&["run", pipeline, "--on-active", "after", "--watch"]).ends(0)
    }

    async fn search(&self, index: &str, query: Value) -> Vec<Value> {
        let server = self.indexes.server();
        server.refresh(&self.index(index)).await;
        let found = server.search(&self.index(index), json!({"size": 1000, "query": query})).await;
        found["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_source"].clone()).collect()
    }

    /// Titles that a person finds by these words.
    async fn titles(&self, words: &str) -> Vec<String> {
        let query = json!({"match": {"title": {"query": words, "operator": "and"}}});
        let found = self.search("movies", query).await;
        found.iter().map(|film| film["title"].as_str().unwrap().to_owned()).collect()
    }

    /// Films in which a person of this name has this role.
    async fn films_of(&self, name: &str, role: &str) -> usize {
        let person = json!([{"match_phrase": {"persons.name": name}}, {"term": {"persons.role": role}}]);
        let query = json!({"nested": {"path": "persons", "query": {"bool": {"must": person}}}});
        self.search("movies", query).await.len()
    }

    async fn count(&self, sql: &str) -> usize {
        usize::try_from(self.db.value::<i64>(sql).await).unwrap()
    }
}

fn with_database(command: Vitrina, db: &Database) -> Vitrina {
    let url = db.url();
    command.variable("VITRINA_DATABASE_URL", url).variable("VITRINA_CONNECTIONS_CINEMA_URL", url)
}

#[tokio::test]
async fn the_cinemas_indexes_are_made_of_files_alone_and_follow_their_source() {
    for server in SearchServer::both().await {
        let cinema = Cinema::new(&server).await;
        let said = cinema.vitrina(&["validate", "."]).ends(0);
        assert!(!said.contains("warn") && !said.contains("FAIL"), "{said}");
        assert_eq!(said.matches("takes the rows").count(), 3, "{said}");
        cinema.vitrina(&["apply", ".", "--yes"]).ends(0);
        for (pipeline, _) in INDEX_PIPELINES {
            cinema.run(pipeline);
        }

        let all = json!({"match_all": {}});
        assert_eq!(cinema.search("film_dim", all.clone()).await.len(), 300);
        let rated = cinema.count("select count(distinct film_id) from ugc.ratings").await;
        assert_eq!(cinema.search("film_rating_agg", all).await.len(), rated);
        words_of_both_languages_find_their_films(&cinema).await;
        a_person_is_found_by_name_and_role(&cinema).await;
        changed_links_genres_and_persons_reach_their_films(&cinema).await;
    }
}

async fn words_of_both_languages_find_their_films(cinema: &Cinema) {
    cinema
        .db
        .execute("update content.film_work set title = 'Весёлые ребята' where title = 'Star Trek'")
        .await;
    cinema.run("movies_index");
    assert_eq!(cinema.titles("веселыми ребятами").await, ["Весёлые ребята"]);
    assert_eq!(cinema.titles("returns of a JEDI").await, ["Star Wars: Episode VI - Return of the Jedi"]);
    let found = cinema.search("movies", json!({"range": {"creation_date": {"lte": "1977-05-25"}}})).await;
    let expected = "select count(*) from content.film_work where creation_date <= '1977-05-25'";
    assert_eq!(found.len(), cinema.count(expected).await);
    assert!(found.iter().any(|film| film["rating"] == 8.6), "a number: {found:?}");
}

async fn a_person_is_found_by_name_and_role(cinema: &Cinema) {
    assert_eq!(cinema.films_of("Leonard Nimoy", "director").await, 2);
    assert_eq!(cinema.films_of("Christopher Plummer", "director").await, 0, "he acts in it");
}

async fn changed_links_genres_and_persons_reach_their_films(cinema: &Cinema) {
    let of_genre =
        async |genre: &str| cinema.search("movies", json!({"term": {"genres": genre}})).await.len();
    let (western, action) = (of_genre("Western").await, of_genre("Action").await);
    cinema
        .db
        .execute(
            "insert into content.genre_film_work (film_work_id, genre_id)
             select f.id, g.id from content.film_work f, content.genre g
              where f.title = 'Star Wars: Episode IV - A New Hope' and g.name = 'Western';
             update content.genre set name = 'Fights' where name = 'Action';
             update content.person set name = 'L. Nimoy' where name = 'Leonard Nimoy'",
        )
        .await;
    cinema.run("movies_index");
    assert_eq!((of_genre("Western").await, of_genre("Action").await), (western + 1, 0));
    assert_eq!(of_genre("Fights").await, action);
    assert_eq!(cinema.films_of("L. Nimoy", "director").await, 2);
}

#[tokio::test]
async fn what_an_index_cannot_take_is_told_before_anything_is_saved() {
    let cinema = Cinema::new(&SearchServer::elasticsearch().await).await;
    for (target, told) in [
        ("key: []", "an index needs a key"),
        ("key: [id], touch_column: at", "only a table has a touch column"),
        ("key: [id], mapping: {properties: {id: {type: keyword}}}", "has no field for: title"),
        ("key: [id], document: {rename: {titel: name}}", "name columns that the rows lack: titel"),
    ] {
        let file = format!(
            "targets: [{{name: 'es:{index}', {target}}}]\n\
             pipelines: [{{name: films, source_connection: cinema, target_table: 'es:{index}', source_query: 'select id, title from content.film_work'}}]",
            index = cinema.index("films")
        );
        let said = cinema.vitrina(&["validate", "films.yaml"]).file("films.yaml", &file).ends(2);
        assert!(said.contains("FAIL") && said.contains(told), "{said}");
    }
}
