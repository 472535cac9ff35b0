//! Sample rows of a query. Cells are texts: numbers of 64 bits and decimals do not survive other clients' numbers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use vitrina_guard::{DescribedColumn, Sample};

use super::PipelineConfig;

/// What POST /preview and /explain take.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewQuestion {
    pub(crate) pipeline: PipelineConfig,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Preview {
    pub columns: Vec<PreviewColumn>,
    /// One list of cells a row, as Postgres writes the values; null is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// There are rows that are not shown.
    pub has_more: bool,
    /// Some cells are shown in part, and end with `…`.
    pub is_cut: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PreviewColumn {
    pub name: String,
    /// As Postgres calls it.
    #[schema(example = "numeric")]
    pub r#type: String,
}

impl From<Sample> for Preview {
    fn from(sample: Sample) -> Self {
        let column = |column: DescribedColumn| PreviewColumn { name: column.name, r#type: column.type_name };
        let Sample { columns, rows, has_more, is_cut } = sample;
        Self { columns: columns.into_iter().map(column).collect(), rows, has_more, is_cut }
    }
}
