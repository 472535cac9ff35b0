//! The words of `core` as schemas of the documentation: one list gives both.

use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! documented {
    ($($name:ident),+) => { documented!($($name = $name),+); };
    ($($name:ident = $word:ident),+) => { $(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = vitrina_core::$word::ALL.iter().map(|word| word.as_str());
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
            }
        }

        impl ToSchema for $name {}
    )+ };
}

documented!(
    Capture,
    Decision,
    DifferenceKind,
    FirstLoad,
    Mode,
    OnActive,
    OnChange,
    PipelineKind,
    ReadBy,
    ReconcileStage,
    ReconcileStatus,
    ReconcileTrigger,
    RunStatus,
    Status
);
// Beside the other models these words alone say too little.
documented!(ReconcileLevel = Level, ReconcileVerdict = Verdict);

/// Any JSON.
#[derive(Debug)]
pub(crate) struct Anything;

impl PartialSchema for Anything {
    fn schema() -> RefOr<Schema> {
        let types = [Type::Null, Type::Boolean, Type::Number, Type::String, Type::Array, Type::Object];
        ObjectBuilder::new().schema_type(SchemaType::from_iter(types)).into()
    }
}

impl ToSchema for Anything {}
