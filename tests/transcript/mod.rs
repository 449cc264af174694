//! See the module of the same name.

pub(crate) mod arbitrary;
mod collapse;
mod compaction;
mod contributors;
mod heal;
mod measure;
mod media;
mod repair;
mod validity;
