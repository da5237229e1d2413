//! Research tools: corpora, what a model makes of a text, experiments and a page about them.
//!
//! What is measured is written as JSON of one shape ([`record`], `docs/benchmark-result.schema.json`); what the
//! numbers mean stands in `docs/CARRIERS.md`. But for the seconds, the same input gives the same output everywhere.

pub mod corpus;
pub mod experiment;
mod fields;
pub mod golden;
pub mod quality;
pub mod record;
pub mod report;
pub mod run;
pub mod speed;
pub mod split;
