//! Journal: sessions on disk, their recovery and cleanup.

mod arbitrary;
mod contract;
mod crash;
mod damaged;
mod disk;
mod foreign;
mod owner;
mod places;
mod recoveries;
mod restored;
mod rewritten;
mod story;
mod torn;
mod upkeep;
