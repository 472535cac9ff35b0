//! The database itself refuses impossible states, whoever writes.

use vitrina_core::{Lifecycle, Status};

use crate::stage::Stage;

/// The SQLSTATE that a statement is refused with.
async fn refusal(stage: &Stage, sql: &str) -> String {
    let client = stage.db.client().await;
    let error = client.batch_execute(sql).await.expect_err(sql);
    error.code().expect("a refusal of the server").code().to_owned()
}

#[tokio::test]
async fn the_transition_trigger_allows_exactly_what_the_table_of_core_allows() {
    let stage = Stage::new().await;
    let allowed = Lifecycle::transitions();
    stage.create("walker").await;
    // Only the trigger is asked: the other constraints are lifted in this database.
    stage
        .db
        .execute(
            "alter table etl.etl_pipelines drop constraint active_pipelines_have_a_run, drop constraint leased_pipelines_have_an_owner",
        )
        .await;
    for &from in Status::ALL {
        for &to in Status::ALL {
            stage
                .db
                .execute(&format!(
                    "alter table etl.etl_pipelines disable trigger check_transition; update etl.etl_pipelines set status = '{from}';
                     alter table etl.etl_pipelines enable trigger check_transition"
                ))
                .await;
            let client = stage.db.client().await;
            let outcome =
                client.batch_execute(&format!("update etl.etl_pipelines set status = '{to}'")).await;
            let expected = from == to || allowed.contains(&(from, to));
            assert_eq!(outcome.is_ok(), expected, "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn impossible_states_are_refused_by_the_database() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    let check = "23514";
    let refused = [
        ("a pipeline that begins otherwise than IDLE", "VT003",
         "insert into etl.etl_pipelines (name, target_table, status) values ('x', 'analytics.x', 'PAUSED')".to_owned()),
        ("a requested pipeline without a run", check, format!("update etl.etl_pipelines set status = 'RUN_REQUESTED' where id = '{id}'")),
        ("a disabled pipeline that is requested", check,
         format!("update etl.etl_pipelines set status = 'RUN_REQUESTED', run_id = gen_random_uuid(), enabled = false where id = '{id}'")),
        ("an owner without a lease", check, format!("update etl.etl_pipelines set owner = gen_random_uuid() where id = '{id}'")),
        ("a batch size of nothing", check, format!("update etl.etl_pipelines set batch_size = 0 where id = '{id}'")),
        ("an incremental pipeline without a key", check, format!("update etl.etl_pipelines set mode = 'incremental' where id = '{id}'")),
        ("an unknown status", "VT003", format!("update etl.etl_pipelines set status = 'SLEEPING' where id = '{id}'")),
        ("a negative limit of rejects", check, format!("update etl.etl_pipelines set reject_limit = -1 where id = '{id}'")),
        ("an unknown way of reading", check, format!("update etl.etl_pipelines set read = 'offset' where id = '{id}'")),
        ("an unknown first load", check, format!("update etl.etl_pipelines set first_load = 'truncate' where id = '{id}'")),
        ("a task that is neither SQL nor PYTHON", check,
         format!("insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body) values ('{id}', 1, 'BASH', 'ls')")),
        ("a task with an empty body", check,
         format!("insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body) values ('{id}', 1, 'SQL', ' ')")),
        ("a run that failed without an error", check,
         format!("insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot, status, finished_at)
                  values (gen_random_uuid(), '{id}', 'api', 'full', '{{}}', 'FAILED', now())")),
        ("a backfill whose keys are no list", check,
         format!("insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot, keys)
                  values (gen_random_uuid(), '{id}', 'api', 'full', '{{}}', '{{}}')")),
        ("a closed run without an end", check,
         format!("insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot, status)
                  values (gen_random_uuid(), '{id}', 'api', 'full', '{{}}', 'SUCCESS')")),
    ];
    for (what, state, sql) in refused {
        assert_eq!(refusal(&stage, &sql).await, state, "{what}");
    }
}

#[tokio::test]
async fn a_pipeline_has_at_most_one_open_run_and_a_run_at_most_one_open_attempt() {
    let stage = Stage::new().await;
    let id = stage.create("film_dim").await;
    stage.request(id).await;
    let second = format!(
        "insert into etl.etl_runs (id, pipeline_id, trigger, mode, snapshot) values (gen_random_uuid(), '{id}', 'api', 'full', '{{}}')"
    );
    assert_eq!(refusal(&stage, &second).await, "23505");
    let claim = stage.claim().await.unwrap();
    let again = format!(
        "insert into etl.etl_attempts (run_id, pipeline_id, runner, token) values ('{}', '{id}', 'other', 99)",
        claim.run
    );
    assert_eq!(refusal(&stage, &again).await, "23505");
}

#[tokio::test]
async fn a_mart_login_may_commit_a_batch_and_nothing_else_in_etl() {
    let stage = Stage::new().await;
    let role = format!("mart_{}", stage.db.name());
    stage
        .db
        .execute(&format!(
            "create role {role} login password 'secret'; grant usage on schema etl to {role};
             grant execute on function etl.commit_batch(uuid, uuid, bigint, bigint, jsonb, jsonb) to {role}"
        ))
        .await;
    let client = stage.db.client().await;
    client.batch_execute(&format!("set role {role}")).await.unwrap();
    let denied = client.batch_execute("update etl.etl_state set version = 7").await.unwrap_err();
    assert_eq!(denied.code().unwrap().code(), "42501");
    let call = "select etl.commit_batch(gen_random_uuid(), gen_random_uuid(), 1, 0, '{}', '{}')";
    let fenced = client.batch_execute(call).await.unwrap_err();
    assert_eq!(fenced.code().unwrap().code(), "VT001");
    client.batch_execute("reset role").await.unwrap();
    stage.db.execute(&format!("drop owned by {role}; drop role {role}")).await;
}
