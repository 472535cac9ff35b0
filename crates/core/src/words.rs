//! Enums whose values are words of the language shared by SQL, JSON, CLI and UI: one list gives the
//! spelling, the parser and the error that names the known values.

/// The text was none of the words of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {given:?}: one of {known}")]
pub struct UnknownWord {
    pub what: &'static str,
    pub given: String,
    pub known: String,
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::words::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| {
                    crate::words::UnknownWord {
                        what: $what,
                        given: text.to_owned(),
                        known: Self::ALL.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(", "),
                    }
                })
            }
        }
    };
}
pub(crate) use words;
