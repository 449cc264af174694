//! See the module of the same name.

pub(crate) mod arbitrary;
mod measure;
mod repair;
mod validity;
