//! Redaction of secrets in whole texts, in JSON and in streams.

mod examples;
mod false_positives;
mod json;
mod patterns;
mod public_rules;
mod streams;

use examples::examples;
