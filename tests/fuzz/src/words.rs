//! Small texts from people and services: names, addresses, rules, scenario files.

use outlast::journal::SessionId;
use outlast::model::{BaseUrl, cost, model_facts, resolve_alias};
use outlast::rehearsal::Scenario;
use outlast::transcript::Usage;

pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match mode % 4 {
        0 => {
            let known = model_facts(resolve_alias(&text));
            if let Some(prices) = known.prices_at(mode & 4 == 0) {
                let most = u64::MAX;
                let usage = Usage {
                    input_tokens: most,
                    output_tokens: most,
                    cache_creation_input_tokens: most,
                    cache_read_input_tokens: most,
                    web_search_requests: 0,
                };
                let _ = cost(&prices, &usage);
            }
        }
        1 => {
            if let Ok(address) = BaseUrl::parse(&text) {
                let base = address.base();
                let again = BaseUrl::parse(&base).expect("its own spelling is an address");
                assert_eq!(again.base(), base, "one address, one spelling");
            }
        }
        2 => {
            if let Some(id) = SessionId::parse(&text) {
                assert!(!id.as_str().contains(['/', '\0']), "a session's name is a file's name");
                assert!(!matches!(id.as_str(), "" | "." | ".."));
            }
        }
        _ => {
            let _ = Scenario::parse(&text, "file");
        }
    }
}
