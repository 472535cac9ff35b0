//! Which search servers there are.

use super::installation::Installation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// 7.10.
    Elasticsearch,
    /// 2.19.
    OpenSearch,
    /// 3.8, which not every machine has the Java for: see `is_there`.
    OpenSearch3,
}

impl Distribution {
    /// As `scripts/search` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Elasticsearch => "elasticsearch",
            Self::OpenSearch => "opensearch",
            Self::OpenSearch3 => "opensearch3",
        }
    }

    /// The variable that names a server to use instead of starting one.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Elasticsearch => "ELASTICSEARCH_URL",
            Self::OpenSearch => "OPENSEARCH_URL",
            Self::OpenSearch3 => "OPENSEARCH3_URL",
        }
    }

    pub fn is_opensearch(self) -> bool {
        self != Self::Elasticsearch
    }

    /// Whether this machine can start it.
    pub fn is_there(self) -> bool {
        Installation::find(self).is_ok()
    }
}
