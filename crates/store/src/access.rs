//! Bearer tokens, stored hashed, and the audit of every change.

use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::Row;

use crate::{Result, Store};

/// What a token may do. Each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    fn from_word(word: &str) -> Self {
        match word {
            "admin" => Self::Admin,
            "operator" => Self::Operator,
            _ => Self::Viewer,
        }
    }
}

#[derive(Debug, Clone)]
pub struct TokenInfo {
    pub name: String,
    pub role: Role,
}

impl Store {
    pub async fn has_tokens(&self) -> Result<bool> {
        Ok(sqlx::query_scalar("select exists (select from etl.etl_tokens)").fetch_one(&self.pool).await?)
    }

    /// Saves a token under a name; a token of that name is replaced.
    pub async fn put_token(&self, name: &str, role: Role, token: &str) -> Result<()> {
        sqlx::query(
            "insert into etl.etl_tokens (name, role, sha256) values ($1, $2, $3)
             on conflict (name) do update set role = excluded.role, sha256 = excluded.sha256",
        )
        .bind(name)
        .bind(role.as_str())
        .bind(Sha256::digest(token.as_bytes()).to_vec())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn token(&self, token: &str) -> Result<Option<TokenInfo>> {
        let row = sqlx::query("select name, role from etl.etl_tokens where sha256 = $1")
            .bind(Sha256::digest(token.as_bytes()).to_vec())
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let role: String = row.try_get("role")?;
        Ok(Some(TokenInfo { name: row.try_get("name")?, role: Role::from_word(&role) }))
    }

    /// `request_id` finds the call in the log.
    pub async fn audit(
        &self,
        actor: &str,
        request_id: &str,
        action: &str,
        subject: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<()> {
        sqlx::query(
            "insert into etl.etl_audit (actor, action, subject, before, after, request_id) values ($1, $2, $3, $4, $5, $6)",
        )
        .bind(actor)
        .bind(action)
        .bind(subject)
        .bind(before)
        .bind(after)
        .bind(request_id)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
