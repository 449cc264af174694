//! What a run offers beside its tools.

/// The names of what there is to call by name.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    pub commands: Vec<String>,
    pub skills: Vec<String>,
}
