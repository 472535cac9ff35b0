//! Bearer tokens, stored hashed, and the audit of every change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use crate::pipelines::EFFECTIVE_TARGET;
use crate::scope::within;
use crate::{Result, Scope, Store, from_documents};

/// What a token may do. Each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// Who a token stands for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TokenInfo {
    pub name: String,
    pub role: Role,
    /// Values of rows: rejects, differences, previews, and errors that quote them.
    pub sees_rows: bool,
    /// The pipelines that it is for.
    #[serde(rename = "tags")]
    pub scope: Scope,
    pub expires_at: Option<Timestamp>,
}

impl TokenInfo {
    /// The same caller with the same rights, however long they last.
    pub fn equals(&self, other: &Self) -> bool {
        *self == Self { expires_at: self.expires_at, ..other.clone() }
    }
}

/// A token to be saved.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    pub name: &'a str,
    pub role: Role,
    pub secret: &'a str,
    pub expires_at: Option<Timestamp>,
    pub sees_rows: bool,
    pub scope: Scope,
}

impl<'a> NewToken<'a> {
    /// With the rights that its role has when nothing else is said: who only looks sees no rows.
    pub fn of(name: &'a str, role: Role, secret: &'a str) -> Self {
        Self {
            name,
            role,
            secret,
            expires_at: None,
            sees_rows: role > Role::Viewer,
            scope: Scope::EVERYTHING,
        }
    }
}

/// The name of the token that processes may be started with.
pub const ADMIN: &str = "admin";

/// What the meta-store says to an admin token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// There was none.
    Saved,
    /// It is the one that is there.
    Known,
    /// Another one is there, and stays.
    Other,
}

/// A token as it is listed: never the secret itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRecord {
    pub name: String,
    pub role: Role,
    pub sees_rows: bool,
    #[serde(rename = "tags")]
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
}

/// Who made a change, and with which call.
#[derive(Debug, Clone)]
pub struct Actor {
    pub name: String,
    /// Finds the call in the log.
    pub request_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AuditRecord {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub request_id: Option<String>,
}

impl Store {
    pub async fn has_tokens(&self) -> Result<bool> {
        Ok(sqlx::query_scalar("select exists (select from etl.etl_tokens)").fetch_one(&self.pool).await?)
    }

    /// Saves a token under a name; a token of that name is replaced.
    pub async fn put_token(&self, token: &NewToken<'_>) -> Result<()> {
        sqlx::query(
            "insert into etl.etl_tokens (name, role, sha256, expires_at, sees_rows, tags)
             values ($1, $2, $3, $4::timestamptz, $5, $6)
             on conflict (name) do update
                set role = excluded.role, sha256 = excluded.sha256, expires_at = excluded.expires_at,
                    sees_rows = excluded.sees_rows, tags = excluded.tags,
                    created_at = case when etl_tokens.sha256 = excluded.sha256 then etl_tokens.created_at else now() end",
        )
        .bind(token.name)
        .bind(token.role.as_str())
        .bind(digest(token.secret))
        .bind(token.expires_at.map(|at| at.to_string()))
        .bind(token.sees_rows)
        .bind(token.scope.tags())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The admin token that a process was started with. It becomes the one of the meta-store where there is none: never in
    /// place of another, which some other process may have been given.
    pub async fn offer_admin_token(&self, secret: &str) -> Result<Offered> {
        let mut tx = self.pool.begin().await?;
        let saved = sqlx::query(
            "insert into etl.etl_tokens (name, role, sha256, sees_rows) values ($1, 'admin', $2, true) on conflict do nothing",
        )
        .bind(ADMIN)
        .bind(digest(secret))
        .execute(&mut *tx)
        .await?;
        if saved.rows_affected() == 1 {
            let actor = Actor { name: "VITRINA_ADMIN_TOKEN".to_owned(), request_id: String::new() };
            let after = serde_json::json!({"role": "admin"});
            write_audit(&mut tx, &actor, "token.create", &format!("token {ADMIN}"), None, Some(after))
                .await?;
            tx.commit().await?;
            return Ok(Offered::Saved);
        }
        let same: bool = sqlx::query_scalar(
            "select coalesce((select sha256 = $2 from etl.etl_tokens where name = $1),
                             exists (select from etl.etl_tokens where sha256 = $2 and role = 'admin' and tags is null))",
        )
        .bind(ADMIN)
        .bind(digest(secret))
        .fetch_one(&mut *tx)
        .await?;
        Ok(if same { Offered::Known } else { Offered::Other })
    }

    /// Who these tokens stand for, by their digests; unknown and expired ones are left out. One look serves many calls.
    pub async fn token_owners(&self, digests: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, TokenInfo)>> {
        let rows: Vec<(Vec<u8>, Value)> = sqlx::query_as(
            "select sha256, jsonb_build_object('name', name, 'role', role, 'sees_rows', sees_rows, 'tags', tags,
                                               'expires_at', expires_at) from etl.etl_tokens
              where sha256 = any($1) and (expires_at is null or expires_at > clock_timestamp())",
        )
        .bind(digests)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(|(digest, owner)| Ok((digest, serde_json::from_value(owner)?))).collect()
    }

    /// Notes that these tokens were used just now.
    pub async fn note_use(&self, digests: &[Vec<u8>]) -> Result<()> {
        sqlx::query("update etl.etl_tokens set last_used_at = clock_timestamp() where sha256 = any($1)")
            .bind(digests)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// By name.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>> {
        let documents: Vec<Value> =
            sqlx::query_scalar("select to_jsonb(t) - 'sha256' from etl.etl_tokens t order by name")
                .fetch_all(&self.pool)
                .await?;
        from_documents(documents)
    }

    /// Answers whether there was one.
    pub async fn revoke_token(&self, name: &str) -> Result<bool> {
        let revoked =
            sqlx::query("delete from etl.etl_tokens where name = $1").bind(name).execute(&self.pool).await?;
        Ok(revoked.rows_affected() == 1)
    }

    pub async fn audit(
        &self,
        actor: &Actor,
        action: &str,
        subject: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        write_audit(&mut connection, actor, action, subject, before, after).await
    }

    /// Newest first, older than the row `before_id`. Within a scope: of its pipelines, of those that had its tags when they were
    /// deleted, and of targets that its pipelines alone write to.
    pub async fn audit_rows(&self, before_id: Option<i64>, limit: i64) -> Result<Vec<AuditRecord>> {
        let sql = format!(
            "select to_jsonb(a) from etl.etl_audit a
              where ($1::bigint is null or id < $1)
                and ($3::text[] is null
                     or exists (select from etl.etl_pipelines p where a.subject = 'pipeline ' || p.id and {within})
                     or (a.action = 'pipeline.delete' and a.before -> 'tags' ?| $3)
                     or (a.subject like 'target %' and (
                            select bool_and({within}) from etl.etl_pipelines p
                             where {EFFECTIVE_TARGET} = substr(a.subject, 8))))
              order by id desc limit $2",
            within = within("p", 3),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(before_id)
            .bind(limit)
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }
}

/// What is stored of a token.
pub fn digest(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

pub(crate) async fn write_audit(
    connection: &mut PgConnection,
    actor: &Actor,
    action: &str,
    subject: &str,
    before: Option<Value>,
    after: Option<Value>,
) -> Result<()> {
    sqlx::query(
        "insert into etl.etl_audit (actor, action, subject, before, after, request_id) values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&actor.name)
    .bind(action)
    .bind(subject)
    .bind(before)
    .bind(after)
    .bind(&actor.request_id)
    .execute(connection)
    .await?;
    Ok(())
}
