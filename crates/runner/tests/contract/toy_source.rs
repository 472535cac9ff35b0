//! A source of one file: films in memory, with every change of them. With one line in the runner's list of sources it
//! can be read from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use serde_json::json;
use uuid::Uuid;
use vitrina_connectors::sources::{Kind, Order};
use vitrina_core::{Advice, Batch, Destination, Error, Mode, Position, Result, Scope, Source};
use vitrina_testbed::Fault;

/// The films of one installation.
#[derive(Debug, Default)]
pub(crate) struct Films {
    /// In the order of their commits; without a title it is deleted.
    pub(crate) changes: Vec<(i32, Option<String>)>,
    pub(crate) requests: usize,
    pub(crate) fault: Option<(usize, Fault)>,
}

impl Films {
    pub(crate) fn now(&self) -> BTreeMap<i32, String> {
        let last: BTreeMap<_, _> = self.changes.iter().cloned().collect();
        last.into_iter().filter_map(|(id, title)| Some((id, title?))).collect()
    }
}

static FILMS: Mutex<BTreeMap<Uuid, Films>> = Mutex::new(BTreeMap::new());

pub(crate) fn with_films<T>(installation: Uuid, act: impl FnOnce(&mut Films) -> T) -> T {
    act(FILMS.lock().unwrap().entry(installation).or_default())
}

#[derive(Debug)]
pub(crate) struct ToySource;

#[async_trait]
impl Kind for ToySource {
    fn source_type(&self) -> &'static str {
        "toy"
    }

    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        if order.backfill.is_some() {
            return Err(Error::fix("backfill.toy", "the toy is not asked for keys"));
        }
        let batch_size = usize::try_from(order.pipeline.batch_size).unwrap_or(1);
        Ok(Box::new(Reading { installation: order.installation, mode: order.mode, batch_size }))
    }
}

struct Reading {
    installation: Uuid,
    mode: Mode,
    batch_size: usize,
}

#[async_trait]
impl Source for Reading {
    fn schema(&self) -> Option<SchemaRef> {
        let (id, title) =
            (Field::new("id", DataType::Int32, true), Field::new("title", DataType::Utf8, true));
        Some(Arc::new(Schema::new(vec![id, title])))
    }

    async fn begin(&mut self, _: &Destination) -> Result<()> {
        self.request(|_| ()).await
    }

    /// A load by pages of ids, then what has changed since it began.
    async fn read(&mut self, from: &Position) -> Result<Option<Batch>> {
        if self.mode == Mode::Full || from.done.is_null() {
            return self.page(from).await.map(Some);
        }
        let at = from.pass.as_ref().map_or(&from.done, |pass| &pass["at"]);
        let start = usize::try_from(at.as_u64().unwrap_or(0)).unwrap_or(0);
        let size = self.batch_size;
        let (films, ids, end, all) = self
            .request(|films| {
                let end = films.changes.len().min(start + size);
                let ids: Vec<i32> = films.changes[start..end].iter().map(|(id, _)| *id).collect();
                (films.now(), ids, end, films.changes.len())
            })
            .await?;
        if start == end && from.pass.is_none() {
            return Ok(None);
        }
        let rows = films.into_iter().filter(|(id, _)| ids.contains(id)).collect();
        let keys = RecordBatch::try_new(
            Arc::new(Schema::new(vec![Field::new("id", DataType::Utf8, true)])),
            vec![Arc::new(ids.iter().map(|id| Some(id.to_string())).collect::<StringArray>()) as ArrayRef],
        );
        let to = match end == all {
            true => Position { done: json!(end), ..Position::default() },
            false => Position { pass: Some(json!({ "at": end })), ..from.clone() },
        };
        Ok(Some(self.batch(rows, Scope::Keys(keys.unwrap()), from, to)))
    }

    async fn advise(&self) -> Result<Vec<Advice>> {
        Ok(Vec::new())
    }

    async fn rest(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Reading {
    async fn page(&self, from: &Position) -> Result<Batch> {
        let (films, changes) = self.request(|films| (films.now(), films.changes.len())).await?;
        let pass = from.pass.clone().unwrap_or_else(|| json!({"after": i32::MIN, "done": changes}));
        let after = pass["after"].as_i64().unwrap_or(i64::MIN);
        let mut rest = films.into_iter().filter(|(id, _)| i64::from(*id) > after);
        let rows: Vec<(i32, String)> = rest.by_ref().take(self.batch_size).collect();
        let to = match (rest.next(), rows.last()) {
            (Some(_), Some((last, _))) => {
                let pass = json!({"after": last, "done": pass["done"]});
                Position { pass: Some(pass), ..from.clone() }
            }
            _ => Position { done: pass["done"].clone(), ..Position::default() },
        };
        Ok(self.batch(rows, Scope::Load { begins: from.pass.is_none() }, from, to))
    }

    fn batch(&self, rows: Vec<(i32, String)>, scope: Scope, from: &Position, to: Position) -> Batch {
        let (ids, titles): (Vec<i32>, Vec<String>) = rows.into_iter().unzip();
        let rows_read = ids.len() as u64;
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int32Array::from(ids)), Arc::new(StringArray::from(titles))];
        Batch {
            rows: RecordBatch::try_new(self.schema().unwrap(), columns).unwrap(),
            columns_unknown: false,
            scope,
            rejected: Vec::new(),
            from: from.clone(),
            to: Some(to),
            backfilled_to: None,
            rows_read,
        }
    }

    async fn request<T>(&self, act: impl FnOnce(&mut Films) -> T) -> Result<T> {
        let (fault, answer) = with_films(self.installation, |films| {
            films.requests += 1;
            let nth = films.requests;
            let fault = films.fault.take_if(|(at, _)| *at == nth).map_or(Fault::Pass, |(_, fault)| fault);
            (fault, act(films))
        });
        match fault {
            Fault::DropReply => {
                Err(Error::release("source.connection_lost", "the answer of the toy is lost"))
            }
            Fault::Hold(gate) | Fault::HoldReply(gate) => {
                gate.enter().await;
                gate.leave();
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }
}
