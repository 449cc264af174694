//! See the module of the same name.

mod crash;
mod disk;
mod foreign;
mod owner;
mod places;
mod restored;
mod story;
mod torn;
