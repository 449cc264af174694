//! Redaction of secrets in whole texts, in JSON and in streams.

mod corpora;
mod examples;
mod json;
mod shapes;
mod streams;

pub(crate) use examples::examples;
