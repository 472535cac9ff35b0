//! The dedicated logins (R-SEC-2) as SQL: `vitrina` keeps the meta-store and writes the marts,
//! `vitrina_reader` reads the sources and nothing else. `vitrina roles` prints it, the demo executes it.

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use vitrina_guard::{Grant, ReaderLogin, quoted, reader_grants};

use crate::exit::{self, Exit};

pub(crate) const LOGIN: &str = "vitrina";
pub(crate) const READER: &str = "vitrina_reader";

#[derive(Debug, Clone)]
pub(crate) struct Grants {
    pub(crate) database: String,
    /// What pipelines may read.
    pub(crate) schemas: Vec<String>,
    /// Where the marts are.
    pub(crate) marts: String,
    /// Dangerous functions are taken from PUBLIC.
    pub(crate) strict: bool,
}

/// Passwords as SQL writes them: a literal, or a variable of psql.
pub(crate) struct Passwords {
    login: String,
    reader: String,
}

impl Passwords {
    /// Variables that psql fills in, so that no secret is printed.
    pub(crate) fn of_psql() -> Self {
        Self { login: ":'vitrina_password'".to_owned(), reader: ":'vitrina_reader_password'".to_owned() }
    }

    pub(crate) fn given(login: &str, reader: &str) -> Self {
        Self { login: literal(login), reader: literal(reader) }
    }
}

impl Grants {
    pub(crate) fn render(&self, passwords: &Passwords) -> String {
        let line = |statement: Grant| format!("{};\n", statement.sql);
        let statements: String = self.statements(passwords).into_iter().map(line).collect();
        format!(
            "-- Run by an administrator who also runs `vitrina migrate`, in database {}, after all migrations:\n\
             --   \\set vitrina_password `cat FILE`\n\
             --   \\set vitrina_reader_password `cat ANOTHER_FILE`\n\
             --   \\i roles.sql\n\
             -- Typed in psql, so that no password is seen in the list of processes or in a history.\n\
             -- Repeatable. New tables of the same administrator are covered too; run it again after new views: it\n\
             -- takes SELECT back from those that read other schemas.\n{statements}",
            self.database
        )
    }

    fn statements(&self, passwords: &Passwords) -> Vec<Grant> {
        let database = quoted(&self.database);
        let mut all = Vec::new();
        for (role, password) in [(LOGIN, &passwords.login), (READER, &passwords.reader)] {
            all.push(anywhere(format!(
                "do $$ begin if to_regrole('{role}') is null then create role {role}; end if; end $$"
            )));
            all.push(anywhere(format!("alter role {role} with login password {password}")));
        }
        let (schemas, strict) = (self.schemas.as_slice(), self.strict);
        all.extend(reader_grants(&ReaderLogin { role: READER, database: &self.database, schemas, strict }));
        all.push(anywhere(format!("grant connect, temporary on database {database} to {LOGIN}")));
        // Staging of loads, and the fence of marts whose meta-store is elsewhere.
        all.push(anywhere(format!("create schema if not exists vitrina authorization {LOGIN}")));
        let write = "select, insert, update, delete on tables";
        all.extend(grants("etl", LOGIN, &[write, "usage, select on sequences", "execute on functions"]));
        all.extend(grants(&self.marts, LOGIN, &[write]));
        all
    }

    /// Creates or alters the logins. Grants on schemas that are not there yet are left for the next time.
    pub(crate) async fn apply(&self, connection: &mut PgConnection, passwords: &Passwords) -> Result<()> {
        self.execute(connection, passwords).await.map_err(|error| refused(&error))
    }

    async fn execute(&self, connection: &mut PgConnection, passwords: &Passwords) -> sqlx::Result<()> {
        let mut transaction = connection.begin().await?;
        for Grant { schema, sql } in self.statements(passwords) {
            match schema {
                Some(schema) if !exists(&mut transaction, &schema).await? => {}
                _ => {
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await?;
                }
            }
        }
        transaction.commit().await
    }
}

async fn exists(connection: &mut PgConnection, schema: &str) -> sqlx::Result<bool> {
    let query = "select to_regnamespace(quote_ident($1)) is not null";
    sqlx::query_scalar(query).bind(schema).fetch_one(connection).await
}

fn anywhere(sql: String) -> Grant {
    Grant { schema: None, sql }
}

/// What is there now, and what the same administrator creates later.
fn grants(schema: &str, role: &str, rights: &[&str]) -> Vec<Grant> {
    let name = quoted(schema);
    let mut all = vec![format!("grant usage on schema {name} to {role}")];
    for right in rights {
        let now = right.replace(" on ", " on all ");
        all.push(format!("grant {now} in schema {name} to {role}"));
        all.push(format!("alter default privileges in schema {name} grant {right} to {role}"));
    }
    all.into_iter().map(|sql| Grant { schema: Some(schema.to_owned()), sql }).collect()
}

/// The statement itself may hold a password, so only the server's words are repeated.
fn refused(error: &sqlx::Error) -> anyhow::Error {
    let exit = if matches!(error, sqlx::Error::Database(_)) { Exit::Refused } else { Exit::Failed };
    exit.fault(format!(
        "the logins cannot be created: {}\nhint: let an administrator do it: a login that may create roles \
         and owns the database",
        exit::told(error)
    ))
}

fn literal(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('\'', "''");
    format!("e'{escaped}'")
}
