//! A function of the caller in a struct that can be cloned and shown.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A shared function, as in `Callback<dyn Fn(&Path) -> bool + Send + Sync>`.
pub struct Callback<F: ?Sized>(pub Arc<F>);

impl<F: ?Sized> Clone for Callback<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl<F: ?Sized> Deref for Callback<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}
