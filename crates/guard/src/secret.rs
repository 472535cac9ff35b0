//! A secret of the configuration that may be rotated while this process lives.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::{ExposeSecret, SecretString};

type Origin = dyn Fn() -> Option<SecretString> + Send + Sync;

/// Its clones share what was read last.
#[derive(Clone)]
pub struct Secret {
    current: Arc<RwLock<SecretString>>,
    origin: Option<Arc<Origin>>,
}

impl Secret {
    /// `origin` reads it where it came from; it may block.
    pub fn from_origin(
        current: SecretString,
        origin: impl Fn() -> Option<SecretString> + Send + Sync + 'static,
    ) -> Self {
        Self { origin: Some(Arc::new(origin)), ..Self::from(current) }
    }

    pub fn get(&self) -> SecretString {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is another one by now than `refused`, which a server did not take. Somebody else may have read it meanwhile.
    pub async fn read_again(&self, refused: &SecretString) -> bool {
        if let Some(origin) = self.origin.clone()
            && let Ok(Some(found)) = tokio::task::spawn_blocking(move || origin()).await
        {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = found;
        }
        self.get().expose_secret() != refused.expose_secret()
    }
}

impl From<SecretString> for Secret {
    fn from(current: SecretString) -> Self {
        Self { current: Arc::new(RwLock::new(current)), origin: None }
    }
}

impl From<String> for Secret {
    fn from(current: String) -> Self {
        SecretString::from(current).into()
    }
}

impl From<&str> for Secret {
    fn from(current: &str) -> Self {
        SecretString::from(current).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_secret_that_was_rotated_is_read_again_and_its_clones_know_it() {
        let file = Arc::new(Mutex::new("old"));
        let origin = Arc::clone(&file);
        let secret = Secret::from_origin("old".into(), move || Some((*origin.lock().unwrap()).into()));
        let clone = secret.clone();
        assert!(!secret.read_again(&"old".into()).await, "nothing has changed");
        *file.lock().unwrap() = "new";
        assert!(secret.read_again(&"old".into()).await);
        assert_eq!(clone.get().expose_secret(), "new");
        assert!(!clone.read_again(&"new".into()).await, "the new one was refused too");
    }

    #[tokio::test]
    async fn what_cannot_be_read_any_more_stays_as_it_was() {
        let secret = Secret::from_origin("old".into(), || None);
        assert!(!secret.read_again(&"old".into()).await);
        assert_eq!((secret.get().expose_secret(), format!("{secret:?}").as_str()), ("old", "Secret"));
    }
}
