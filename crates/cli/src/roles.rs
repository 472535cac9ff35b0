//! The dedicated logins (R-SEC-2) as SQL: `vitrina` keeps the meta-store and writes the marts,
//! `vitrina_reader` reads the sources and nothing else. `vitrina roles` prints it, the demo executes it.
//! Whoever executes it owns the database and may create roles; a superuser is not needed.

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use vitrina_guard::{FromPublic, Grant, ReaderLogin, literal, quoted, reader_grants, reader_settings};

use crate::exit::{self, Exit};

pub(crate) const LOGIN: &str = "vitrina";
pub(crate) const READER: &str = "vitrina_reader";
/// Sessions of the reader at once: four runs of some runners, and the API's own.
pub(crate) const READER_CONNECTIONS: u32 = 50;

#[derive(Debug, Clone)]
pub(crate) struct Grants {
    /// The one that the session must be in, where it is named.
    pub(crate) database: Option<String>,
    /// What pipelines may read.
    pub(crate) schemas: Vec<String>,
    /// Where the marts are.
    pub(crate) marts: String,
    pub(crate) login: String,
    pub(crate) reader: String,
    pub(crate) reader_connections: u32,
    pub(crate) from_public: FromPublic,
    pub(crate) part: Part,
}

/// What of it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Part {
    #[default]
    All,
    Logins,
    Grants,
    Source,
}

/// Whoever makes a schema of the administrator's name would have functions of his own called.
const PINNED: &str = "set local search_path = pg_catalog, pg_temp";

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
        Self { login: escaped(login), reader: escaped(reader) }
    }
}

impl Grants {
    /// A file for psql: all of it, or nothing and an exit code that tells.
    pub(crate) fn render(&self, passwords: &Passwords) -> String {
        let line = |sql: &String| format!("{sql};\n");
        let checks: String = self.checks().iter().map(line).collect();
        let statements: String = self.statements(passwords).iter().map(|grant| line(&grant.sql)).collect();
        let variables = match self.part {
            Part::Grants => "",
            Part::Source => "--   \\set vitrina_reader_password `cat FILE`\n",
            Part::All | Part::Logins => {
                "--   \\set vitrina_password `cat FILE`\n--   \\set vitrina_reader_password `cat ANOTHER_FILE`\n"
            }
        };
        format!(
            "-- For psql, by the owner of the database, who also runs `vitrina migrate` before it and may create roles:\n\
             {variables}\
             --   \\i roles.sql\n\
             -- Typed in `psql -v ON_ERROR_STOP=1`, so that no password is seen in the list of processes or in a history.\n\
             -- One transaction: an error leaves nothing behind, and such a psql ends with 3.\n\
             -- Repeatable. New tables of the same owners are covered too; run it again after new views: it\n\
             -- takes SELECT back from those that read other schemas.\n\
             \\set ON_ERROR_STOP on\n\\set ON_ERROR_ROLLBACK off\nbegin;\n{PINNED};\n{}{checks}{statements}commit;\n",
            self.password_check()
        )
    }

    /// An empty password is none: such a login could not connect.
    fn password_check(&self) -> String {
        let variables: &[&str] = match self.part {
            Part::Grants => return String::new(),
            Part::Source => &["vitrina_reader_password"],
            Part::All | Part::Logins => &["vitrina_password", "vitrina_reader_password"],
        };
        let is_empty =
            variables.iter().map(|name| format!(":'{name}' = ''")).collect::<Vec<_>>().join(" or ");
        let names = variables.join(" and ");
        format!(
            "select {is_empty} as vitrina_no_password \\gset\n\\if :vitrina_no_password\n\
             do $$ begin raise exception 'a password is empty' using hint = 'set the variables {names} of psql'; end $$;\n\\endif\n"
        )
    }

    /// What a person is told before anything is changed, and the schema of the marts.
    fn checks(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(database) = &self.database {
            all.push(format!(
                "do $$ begin if current_database() <> {} then\n  \
                 raise exception 'this is for another database than %', current_database() using hint = 'connect psql to the one that --database named';\n\
                 end if; end $$",
                literal(database)
            ));
        }
        if self.part != Part::Grants {
            all.push(may_create_roles(self.part));
        }
        if matches!(self.from_public, FromPublic::Functions) {
            all.push(
                "do $$ begin if not (select rolsuper from pg_roles where rolname = current_user) then\n  \
                 raise exception 'only a superuser can take functions from PUBLIC' using hint = 'execute it as one, or leave --strict out';\n\
                 end if; end $$"
                    .to_owned(),
            );
        }
        if matches!(self.part, Part::All | Part::Grants) {
            all.push(
                "do $$ begin if to_regnamespace('etl') is null then\n  \
                 raise exception 'there is no schema etl in database %', current_database() using hint = 'run `vitrina migrate` on it first; \
                 `vitrina roles --part source` is for a database that is only read';\nend if; end $$"
                    .to_owned(),
            );
            all.push(create_schema(&self.marts));
        }
        all
    }

    fn statements(&self, passwords: &Passwords) -> Vec<Grant> {
        let mut all = Vec::new();
        let (login, reader) = ((&self.login, &passwords.login), (&self.reader, &passwords.reader));
        let roles: &[_] = match self.part {
            Part::Grants => &[],
            Part::Source => &[reader],
            Part::All | Part::Logins => &[login, reader],
        };
        all.extend(roles.iter().flat_map(|(role, password)| with_password(role, password)));
        if self.part != Part::Grants {
            all.extend(reader_settings(&self.reader, self.reader_connections));
        }
        if self.part != Part::Logins {
            let (role, schemas, from_public) = (&self.reader, self.schemas.as_slice(), self.from_public);
            all.extend(reader_grants(&ReaderLogin { role, schemas, from_public }));
        }
        if matches!(self.part, Part::All | Part::Grants) {
            all.extend(self.of_login());
        }
        all
    }

    /// What the login of the services may do: write marts, make those that are missing, keep the meta-store.
    fn of_login(&self) -> Vec<Grant> {
        let (login, role) = (quoted(&self.login), literal(&self.login));
        let mut all = vec![anywhere(format!(
            "do $$ begin execute format('grant connect, temporary on database %I to %I', current_database(), {role}); end $$"
        ))];
        // Staging of loads, and the fence of marts whose meta-store is elsewhere. Its owner need not be the login: only a
        // superuser or a member of a role may give it schemas.
        all.push(anywhere(create_schema("vitrina")));
        all.push(anywhere(usage_and_create("vitrina", &self.login)));
        let write = "select, insert, update, delete on tables";
        all.extend(grants("etl", &login, &[write, "usage, select on sequences", "execute on functions"]));
        let keep = format!(
            "do $$ begin if to_regprocedure('etl.forget_audit(interval)') is not null then execute format('revoke execute on function etl.forget_audit(interval) from %I', {role}); end if; end $$"
        );
        all.push(Grant { schema: Some("etl".to_owned()), sql: keep });
        let marts = [
            usage_and_create(&self.marts, &self.login),
            write_tables(&self.marts, &self.login),
            format!("alter default privileges in schema {} grant {write} to {login}", quoted(&self.marts)),
        ];
        all.extend(marts.map(|sql| Grant { schema: Some(self.marts.clone()), sql }));
        all
    }

    /// Creates or alters the logins. Grants on schemas that are not there yet are left for the next time.
    pub(crate) async fn apply(&self, connection: &mut PgConnection, passwords: &Passwords) -> Result<()> {
        self.execute(connection, passwords).await.map_err(|error| refused(&error))
    }

    async fn execute(&self, connection: &mut PgConnection, passwords: &Passwords) -> sqlx::Result<()> {
        let mut transaction = connection.begin().await?;
        sqlx::raw_sql(PINNED).execute(&mut *transaction).await?;
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

fn with_password(role: &str, password: &str) -> [Grant; 2] {
    let (name, text) = (quoted(role), literal(role));
    [
        anywhere(format!(
            "do $$ begin if not exists (select from pg_roles where rolname = {text}) then execute format('create role %I', {text}); end if; end $$"
        )),
        anywhere(format!("alter role {name} with login password {password}")),
    ]
}

/// `create schema if not exists` would need the right to create schemas even where it is there.
fn create_schema(schema: &str) -> String {
    let (name, text) = (literal(&quoted(schema)), literal(schema));
    format!(
        "do $$ begin if to_regnamespace({name}) is null then execute format('create schema %I', {text}); end if; end $$"
    )
}

/// A right that is there already, by whomever, needs no grant.
fn usage_and_create(schema: &str, role: &str) -> String {
    let (name, schema) = (literal(&quoted(schema)), literal(schema));
    let role = literal(role);
    format!(
        "do $$ begin\n  \
         if not (has_schema_privilege({role}, {name}::regnamespace, 'usage') and has_schema_privilege({role}, {name}::regnamespace, 'create')) then\n    \
         execute format('grant usage, create on schema %I to %I', {schema}, {role});\n  end if;\nend $$"
    )
}

/// Marts that are there: those that the login has made itself are its own.
fn write_tables(schema: &str, role: &str) -> String {
    let text = literal(&quoted(schema));
    let role = literal(role);
    format!(
        "do $$ declare mart regclass; begin\n  \
         for mart in select oid from pg_class where relnamespace = {text}::regnamespace and relkind in ('r', 'p')\n              \
         and exists (select from unnest(array['select', 'insert', 'update', 'delete']) r where not has_table_privilege({role}, oid, r))\n  \
         loop\n    execute format('grant select, insert, update, delete on %s to %I', mart, {role});\n  end loop;\nend $$"
    )
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

fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('\'', "''");
    format!("e'{escaped}'")
}

fn may_create_roles(part: Part) -> String {
    let hint = match part {
        Part::Source => {
            "'let somebody execute this who may create roles and grant on its tables; or: alter role '"
        }
        _ => {
            "'let somebody who may run `vitrina roles --part logins`, then run `vitrina roles --part grants`; or: alter role '"
        }
    };
    format!(
        "do $$ begin if not exists (select from pg_roles where rolname = current_user and (rolsuper or rolcreaterole)) then\n  \
         raise exception '% may not create roles', current_user using hint = {hint} || quote_ident(current_user) || ' createrole;';\nend if; end $$"
    )
}
