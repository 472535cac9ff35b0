//! The migrations that made schema `etl` before the first release, until they were squashed into one file per topic.
//! The schema is the same: a meta-store that has all of them only gets the history of the files that replaced them.

use sqlx::migrate::{Migrate, Migrator};
use sqlx::{Connection, PgConnection};

use crate::{Error, Result};

/// The beginnings of their checksums, from version 1 on.
#[rustfmt::skip]
const CHECKSUMS: [u64; 25] = [
    0xcd15c4f55baa3150, 0x4a442ab7e73dc553, 0x8902f6d46186f39a, 0x8b2ea33ea1587377, 0x7262e57ab48ab02d,
    0x44ebb15a40bfba2c, 0xb43175ebcad72bdb, 0xaceb11aeab430680, 0x6025f45cdb58a919, 0x0150cc37083ddf74,
    0x0b66f50221e4c123, 0x4cfc08b5bcb4370d, 0xa4b54e0f5a137ede, 0x9fbbda85e82734cf, 0x934b32b317b1d6fc,
    0x106463572b8afd0d, 0x285dd1e0e94bc0c2, 0x1f9e74b290459302, 0xc3f5dae8c1ba2d58, 0x4a8501ace06d383c,
    0x3ec9959ef8142497, 0xe9d4ea76ce341714, 0xfa9f1f103a7d2e8d, 0x16e7edd323bcf64b, 0x8c4a516039a0699f,
];
/// The last of the files that replaced them. Those after it are applied as to any other meta-store.
const LAST_REPLACEMENT: i64 = 10;

/// Was schema `etl` made by all of them? A part is refused: no file of this release leads on from there.
pub(crate) fn are_applied(history: &[(i64, Vec<u8>)]) -> Result<bool> {
    let is_squashed = |((version, checksum), (expected, beginning)): (&(i64, Vec<u8>), (i64, u64))| {
        *version == expected && checksum.starts_with(&beginning.to_be_bytes())
    };
    let (applied, known) = (history.len(), CHECKSUMS.len());
    if applied == 0 || applied > known || !history.iter().zip((1..).zip(CHECKSUMS)).all(is_squashed) {
        return Ok(false);
    }
    if applied < known {
        return Err(Error::SchemaIncomplete { applied, known });
    }
    Ok(true)
}

/// Replaces their history, and nothing else.
pub(crate) async fn replace_history(connection: &mut PgConnection, migrator: &Migrator) -> Result<()> {
    let mut transaction = connection.begin().await?;
    sqlx::query("delete from etl.etl_migrations").execute(&mut *transaction).await?;
    for migration in migrator.iter().filter(|migration| migration.version <= LAST_REPLACEMENT) {
        transaction.skip(&migrator.table_name, migration).await.map_err(crate::migrations::explain)?;
    }
    transaction.commit().await?;
    Ok(())
}
