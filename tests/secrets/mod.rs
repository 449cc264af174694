//! What is hidden, what is not, and what becomes of it when it comes in pieces.

mod corpora;
mod examples;
mod json;
mod shapes;
mod streams;

pub(crate) use examples::examples;
