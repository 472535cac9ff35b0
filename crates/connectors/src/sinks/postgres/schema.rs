//! What a database of marts keeps for Vitrina in schema `vitrina`: staging of loads, who writes to which mart, and where the meta-store is
//! elsewhere, the checkpoints. A runner makes what is missing, and gives functions the text of its own release.

use std::sync::LazyLock;

use vitrina_core::{Error, Result};

use crate::connection::Session;
use crate::sql::literal;

/// A release that changes the text of a function raises this, and begins all texts with `-- revision <number>`: runners of an older
/// release leave those of a newer one as they are.
const REVISION: u32 = 0;

struct Function {
    name: &'static str,
    parameters: &'static str,
    returns: &'static str,
    text: &'static str,
}

const FUNCTIONS: [Function; 2] = [COMMIT_BATCH, ACQUIRE_MART];

/// The checkpoint moves by compare-and-set under the newest token, or the whole transaction is refused.
const COMMIT_BATCH: Function = Function {
    name: "vitrina.commit_batch",
    parameters: "p_installation uuid, p_pipeline uuid, p_token bigint, p_from_version bigint, p_checkpoint jsonb, p_outcome jsonb",
    returns: "bigint",
    text: "
    declare
        v_row vitrina.checkpoints;
    begin
        select * into v_row from vitrina.checkpoints
         where installation = p_installation and pipeline = p_pipeline for no key update;
        if v_row.token is distinct from p_token then
            raise exception 'lease lost' using errcode = 'VT001';
        elsif v_row.version <> p_from_version then
            raise exception 'checkpoint moved' using errcode = 'VT002';
        end if;
        update vitrina.checkpoints set version = version + 1, checkpoint = p_checkpoint, outcome = p_outcome,
               updated_at = clock_timestamp()
         where installation = p_installation and pipeline = p_pipeline;
        return p_from_version + 1;
    end ",
};

/// Answers the other writers that keep the mart from the caller, and what the caller has of it. `gone` are writers of its own
/// installation that do not write to it any more; `columns` are null where they are not known yet; where the mart is missing,
/// all that others had in it is gone.
const ACQUIRE_MART: Function = Function {
    name: "vitrina.acquire_mart",
    parameters: "p jsonb",
    returns: "jsonb",
    text: "
    declare
        v_mart text := p ->> 'mart';
        v_installation uuid := (p ->> 'installation')::uuid;
        v_pipeline uuid := (p ->> 'pipeline')::uuid;
        v_columns text[] := (select array_agg(name order by name) from jsonb_array_elements_text(nullif(p -> 'columns', 'null')) name);
        v_own vitrina.marts;
        v_others jsonb;
    begin
        select * into v_own from vitrina.marts where mart = v_mart and installation = v_installation and pipeline = v_pipeline;
        if found and v_own.pipeline_name = p ->> 'name' and v_own.shared is not distinct from p ->> 'shared'
           and v_own.shared_value is not distinct from p ->> 'shared_value'
           and (v_columns is null or v_own.columns = v_columns) and not (p ->> 'missing')::boolean then
            return jsonb_build_object('others', '[]'::jsonb, 'columns', v_own.columns, 'emptied', v_own.emptied);
        end if;
        perform pg_advisory_xact_lock(hashtextextended('vitrina.marts ' || v_mart, 0));
        select * into v_own from vitrina.marts where mart = v_mart and installation = v_installation and pipeline = v_pipeline;
        delete from vitrina.marts m using jsonb_array_elements_text(p -> 'gone') gone
          where m.mart = v_mart and m.installation = v_installation and m.pipeline = gone::uuid;
        v_columns := coalesce(v_columns, case when v_own.shared = p ->> 'shared' then v_own.columns end, '{}');
        select jsonb_agg(jsonb_build_object('installation', installation, 'pipeline', pipeline, 'name', pipeline_name,
                   'shared', shared, 'shared_value', shared_value,
                   'columns', array(select unnest(columns) intersect select unnest(v_columns))) order by acquired_at)
          into v_others from vitrina.marts
         where mart = v_mart and (installation, pipeline) <> (v_installation, v_pipeline)
           and (shared is distinct from p ->> 'shared' or shared is null
                or case shared when 'columns' then columns && v_columns
                               else shared_value is not distinct from p ->> 'shared_value' end);
        if v_others is null then
            insert into vitrina.marts as m (mart, installation, pipeline, pipeline_name, shared, shared_value, columns)
            values (v_mart, v_installation, v_pipeline, p ->> 'name', p ->> 'shared', p ->> 'shared_value', v_columns)
            on conflict (mart, installation, pipeline) do update set pipeline_name = excluded.pipeline_name,
               shared = excluded.shared, shared_value = excluded.shared_value, columns = excluded.columns;
            update vitrina.marts set emptied = true
             where mart = v_mart and pipeline <> v_pipeline and (p ->> 'missing')::boolean;
        end if;
        return jsonb_build_object('others', coalesce(v_others, '[]'), 'columns', v_columns, 'emptied', coalesce(v_own.emptied, false));
    end ",
};

/// `create schema if not exists` would need the right to create schemas even where it is there.
const TABLES: &str = "
    do $$ begin if to_regnamespace('vitrina') is null then create schema vitrina; end if; end $$;
    create unlogged table if not exists vitrina.loads (
        load uuid primary key, pipeline uuid not null, position jsonb not null, rows bigint not null);
    create table if not exists vitrina.checkpoints (
        installation uuid, pipeline uuid, token bigint not null, version bigint not null, checkpoint jsonb not null,
        outcome jsonb not null default '{}', updated_at timestamptz not null default clock_timestamp(),
        primary key (installation, pipeline));
    alter table vitrina.checkpoints add column if not exists owner uuid;
    create table if not exists vitrina.marts (
        mart text, installation uuid, pipeline uuid, pipeline_name text not null,
        acquired_at timestamptz not null default clock_timestamp(), primary key (mart, installation, pipeline));
    alter table vitrina.marts add column if not exists shared text, add column if not exists shared_value text,
        add column if not exists columns text[] not null default '{}',
        add column if not exists emptied boolean not null default false";

/// Whether all of it is there, with functions of this release or a newer one.
static IS_CURRENT: LazyLock<String> = LazyLock::new(|| {
    let functions = FUNCTIONS.iter().map(Function::is_current).collect::<Vec<_>>().join(" and ");
    format!(
        "to_regclass('vitrina.loads') is not null and to_regclass('vitrina.marts') is not null
         and exists (select from pg_attribute where attrelid = to_regclass('vitrina.checkpoints') and attname = 'owner')
         and {functions}"
    )
});

impl Function {
    fn is_current(&self) -> String {
        format!(
            "exists (select from pg_proc where oid = to_regproc('{}')
                and (prosrc = {} or substring(prosrc from '^\\s*-- revision (\\d+)')::int > {REVISION}))",
            self.name,
            literal(self.text)
        )
    }

    fn statement(&self) -> String {
        let Self { name, parameters, returns, text } = self;
        format!(
            "do $do$ begin if not {} then
                 create or replace function {name}({parameters}) returns {returns}
                 language plpgsql set search_path = pg_catalog, pg_temp as $${text}$$;
             end if; end $do$",
            self.is_current()
        )
    }
}

/// A condition of SQL.
pub(super) fn is_current() -> &'static str {
    &IS_CURRENT
}

/// Makes what is missing or outdated. Runners take turns.
pub(super) async fn prepare(session: &Session) -> Result<()> {
    let known = format!("select {}", is_current());
    let row = session.client.query_one(&known, &[]).await.map_err(|error| session.explain(error))?;
    if row.get(0) {
        return Ok(());
    }
    let once = "select pg_advisory_xact_lock(hashtextextended('vitrina.schema', 0))";
    let functions = FUNCTIONS.iter().map(Function::statement).collect::<Vec<_>>().join("; ");
    let made = session.run(&format!("begin; {once}; {TABLES}; {functions}; commit")).await;
    made.map_err(|error| match error.is_refused() {
        true => Error::fix(
            "sink.no_schema",
            format!("schema vitrina cannot be made or brought up to date beside the marts: {error}"),
        )
        .hint(
            "`vitrina roles` prints the statements for an administrator; staging and fences are kept there",
        ),
        false => error,
    })
}
