//! The filter of `--debug`.

use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Filter for the log messages of libraries: `TARGET=LEVEL`, separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter(Targets);

impl LogFilter {
    pub fn targets(&self) -> &Targets {
        &self.0
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self(Targets::new().with_default(LevelFilter::DEBUG))
    }
}

impl FromStr for LogFilter {
    type Err = String;

    /// Parses a filter. Other agents name categories, without a level: these select everything.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.contains('=') {
            return Ok(Self::default());
        }
        let wanted = Targets::from_str(text).map_err(|error| {
            format!("{text:?} is not a filter such as hyper_util=trace,rustls=debug: {error}")
        })?;
        Ok(Self(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_targets_with_levels_and_anything_else_selects_all() {
        for all in ["", "api,hooks", "!statsig"] {
            assert_eq!(all.parse(), Ok(LogFilter::default()), "{all:?}");
        }
        let LogFilter(some) = "hyper_util=trace,rustls=off".parse().expect("a filter");
        assert!(some.would_enable("hyper_util::client", &tracing::Level::TRACE));
        assert!(!some.would_enable("rustls::conn", &tracing::Level::ERROR));
        let refused = "rustls=loud".parse::<LogFilter>().expect_err("no level");
        assert!(refused.starts_with("\"rustls=loud\" is not a filter such as"), "{refused}");
    }
}
