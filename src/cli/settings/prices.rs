//! Prices of models, from flags and files.

use std::collections::BTreeMap;

use super::file_settings::FilePrice;
use crate::cli::usage::UsageError;
use crate::cli::values;

/// Prices from the files, and over them those of `--price`.
pub(super) fn prices(
    flags: &[String],
    mut prices: BTreeMap<String, FilePrice>,
) -> Result<BTreeMap<String, FilePrice>, UsageError> {
    for flag in flags {
        let wrong = || {
            UsageError::new(format!(
                "--price: {flag:?} is no price; write [MODEL=]IN/OUT[/CACHE-READ/CACHE-WRITE] in \
                 US dollars per million tokens, for example my-model=3/15"
            ))
        };
        let (model, amounts) = flag.rsplit_once('=').unwrap_or(("", flag));
        let amounts: Vec<f64> = amounts
            .split('/')
            .map(|amount| amount.trim().parse().ok())
            .collect::<Option<_>>()
            .filter(|amounts: &Vec<f64>| {
                amounts.iter().all(|amount| values::price_of_one(*amount).is_ok())
            })
            .ok_or_else(wrong)?;
        let price = match amounts[..] {
            [input, output] => FilePrice { input, output, cache_read: None, cache_write: None },
            [input, output, read, write] => {
                FilePrice { input, output, cache_read: Some(read), cache_write: Some(write) }
            }
            _ => return Err(wrong()),
        };
        prices.insert(model.trim().to_owned(), price);
    }
    Ok(prices)
}
