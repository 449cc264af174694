//! Environment variables whose values may be secret.

use std::collections::BTreeMap;
use std::collections::btree_map::{IntoIter, Iter};
use std::ffi::OsString;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Environment variables by name. `Debug` prints only the names, since any value may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<OsString, OsString>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Deref for Variables {
    type Target = BTreeMap<OsString, OsString>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Variables {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<BTreeMap<OsString, OsString>> for Variables {
    fn from(variables: BTreeMap<OsString, OsString>) -> Self {
        Self(variables)
    }
}

impl FromIterator<(OsString, OsString)> for Variables {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(pairs: I) -> Self {
        let mut variables = BTreeMap::new();
        // `collect` would sort first, with 4 kB of code for each type of iterator.
        variables.extend(pairs);
        Self(variables)
    }
}

impl IntoIterator for Variables {
    type Item = (OsString, OsString);
    type IntoIter = IntoIter<OsString, OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Variables {
    type Item = (&'a OsString, &'a OsString);
    type IntoIter = Iter<'a, OsString, OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_variable_names_without_values() {
        let variables: Variables = [("API_KEY".into(), "hush-hush".into())].into_iter().collect();
        assert_eq!(format!("{variables:?}"), r#"{"API_KEY"}"#);
    }
}
