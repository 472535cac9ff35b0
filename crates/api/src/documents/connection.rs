//! The servers that pipelines read from and write to, as far as they may be told of.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use vitrina_guard::{Visible, VisibleColumn, VisibleTable};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    pub name: String,
    /// Without passwords; null where only runners know it.
    #[schema(example = "postgres://vitrina_reader@db:5432/cinema")]
    pub address: Option<String>,
    /// Schemas that queries may read; null where only runners know it.
    pub allowed_schemas: Option<Vec<String>>,
    /// What each living runner found there when it started.
    pub runners: Vec<ConnectionFinding>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ConnectionFinding {
    pub runner: String,
    /// `unreachable` or `refused`; null where nothing is wrong.
    pub problem: Option<String>,
}

/// What a runner found at a connection just now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ConnectionTest {
    pub ok: bool,
    /// The runner that looked.
    pub runner: String,
    /// How long opening a session took, or the first answer.
    pub connect_ms: Option<u64>,
    /// What answered.
    #[schema(example = "PostgreSQL 15.8")]
    pub server: Option<String>,
    /// What does not work; null where all does.
    pub problem: Option<String>,
    /// Statements that an administrator runs to give what is missing; at a search server, the rights that are missing.
    pub missing_grants: Vec<String>,
    /// How rights were found out, where a server does not tell them.
    #[serde(default)]
    pub tried: Option<String>,
}

/// What a query of a pipeline can be written with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceSchema {
    /// By schema and name.
    tables: Vec<SourceTable>,
    /// There are more than these: a thousand tables, and twenty thousand columns, are told of.
    has_more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceTable {
    #[schema(example = "content")]
    schema: String,
    /// Of a table or a view.
    #[schema(example = "film_work")]
    name: String,
    /// Those that the login may read, in their order.
    columns: Vec<SourceColumn>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceColumn {
    name: String,
    /// As Postgres calls it.
    #[schema(example = "timestamp with time zone")]
    r#type: String,
}

impl From<Visible> for SourceSchema {
    fn from(Visible { tables, has_more }: Visible) -> Self {
        let column = |column: VisibleColumn| SourceColumn { name: column.name, r#type: column.type_name };
        let table = |table: VisibleTable| SourceTable {
            schema: table.schema,
            name: table.name,
            columns: table.columns.into_iter().map(column).collect(),
        };
        Self { tables: tables.into_iter().map(table).collect(), has_more }
    }
}
