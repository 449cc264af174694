//! Money amounts and the ledger.
//!
//! Amounts are whole pico-dollars: a token priced at $3 per million costs exactly 3,000,000 of
//! them, so nothing is ever rounded on its way through the ledger.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

use serde::{Deserialize, Serialize};

/// An amount of US dollars, in pico-dollars (10^-12 $).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Money(u64);

impl Money {
    pub const ZERO: Self = Self(0);
    const PER_DOLLAR: u64 = 1_000_000_000_000;

    pub const fn from_pico_dollars(pico: u64) -> Self {
        Self(pico)
    }

    pub const fn as_pico_dollars(self) -> u64 {
        self.0
    }

    /// Upper bound of amounts, in dollars (exclusive): as pico-dollars, lower amounts fit into 64
    /// bits.
    pub const DOLLARS_LIMIT: u32 = 18_000_000;

    /// Converts dollars, rounded to the nearest pico-dollar. `None` if the amount is negative, not
    /// a number, or not below [`Self::DOLLARS_LIMIT`].
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let pico = (dollars * 1e12).round();
        if !(0.0..f64::from(Self::DOLLARS_LIMIT) * 1e12).contains(&pico) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked on the line above"
        )]
        let pico = pico as u64;
        Some(Self(pico))
    }

    /// The amount in dollars, for a JSON field. Exact to a pico-dollar below nine thousand dollars.
    pub fn as_dollars(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "shown to people, never added up again")]
        let dollars = self.0 as f64 / 1e12;
        dollars
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The number of units at `price` that this amount pays for; `u64::MAX` if they are free.
    pub fn buys(self, price: Self) -> u64 {
        self.0.checked_div(price.0).unwrap_or(u64::MAX)
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Money {
    type Output = Self;
    fn mul(self, units: u64) -> Self {
        Self(self.0.saturating_mul(units))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    /// Rounds up to a hundredth of a cent, so that no cost is shown as zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.div_ceil(Self::PER_DOLLAR / 10_000);
        write!(f, "${}.{:04}", shown / 10_000, shown % 10_000)
    }
}

/// The known part of the money that was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    pub amount: Money,
    /// True if a model without a known price was used, so that the amount is incomplete.
    pub is_partial: bool,
}

impl Spending {
    /// The amount, if it is complete.
    pub fn total(self) -> Option<Money> {
        (!self.is_partial).then_some(self.amount)
    }

    /// The cost as text, for tables and after the word "cost". Says so if the cost is unknown or
    /// incomplete.
    pub fn as_cost(self) -> String {
        match (self.total(), self.amount) {
            (Some(total), _) => total.to_string(),
            (None, Money::ZERO) => "unknown".to_owned(),
            (None, known) => format!("at least {known}"),
        }
    }
}

impl AddAssign for Spending {
    fn add_assign(&mut self, other: Self) {
        self.amount += other.amount;
        self.is_partial |= other.is_partial;
    }
}

/// `None`: no price is known.
impl From<Option<Money>> for Spending {
    fn from(cost: Option<Money>) -> Self {
        Self { amount: cost.unwrap_or_default(), is_partial: cost.is_none() }
    }
}

impl From<Money> for Spending {
    fn from(amount: Money) -> Self {
        Self { amount, is_partial: false }
    }
}

impl fmt::Display for Spending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_partial, self.amount) {
            (false, amount) => write!(f, "{amount} spent"),
            (true, Money::ZERO) => f.write_str("cost unknown"),
            (true, amount) => write!(f, "at least {amount} spent"),
        }
    }
}

/// The amounts that were spent and reserved: reserve before a call, settle after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    ceiling: Option<Money>,
    /// The spending of other runs that share the ceiling, from before this run began.
    earlier: Money,
    spent: Money,
    reserved: Money,
    /// The part of `spent` that is an upper bound: of calls that broke off, and of tokens that a
    /// service did not count.
    unsettled: Money,
}

/// A reservation. Must be settled: if it is dropped, the amount stays reserved.
#[derive(Debug)]
#[must_use = "a reservation that is not settled ties money up for ever"]
pub struct Reservation(Money);

impl Ledger {
    pub fn new(ceiling: Option<Money>) -> Self {
        Self { ceiling, ..Self::default() }
    }

    /// A ledger whose ceiling also counts what other runs have spent.
    #[must_use]
    pub fn with_earlier(self, spent: Money) -> Self {
        Self { earlier: spent, ..self }
    }

    /// A ledger that continues from the spending of an earlier process of the same run.
    #[must_use]
    pub fn with_spent(self, spent: Money) -> Self {
        Self { spent: self.spent + spent, ..self }
    }

    /// A ledger that continues from an earlier upper bound.
    #[must_use]
    pub fn with_unsettled(self, amount: Money) -> Self {
        Self { unsettled: self.unsettled + amount, ..self.with_spent(amount) }
    }

    /// The amount that can still be reserved; `None` without a ceiling.
    pub fn left(&self) -> Option<Money> {
        self.ceiling.map(|ceiling| ceiling.minus(self.counted() + self.reserved))
    }

    /// Reserves `amount`. `None` if it exceeds the amount that is left.
    pub fn reserve(&mut self, amount: Money) -> Option<Reservation> {
        if self.left().is_some_and(|left| amount > left) {
            return None;
        }
        self.reserved += amount;
        Some(Reservation(amount))
    }

    /// Replaces a reservation by the real cost of the call.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a reservation ends here, so that it cannot be settled twice"
    )]
    pub fn settle(&mut self, reservation: Reservation, cost: Money) {
        self.reserved = self.reserved.minus(reservation.0);
        self.spent += cost;
    }

    /// Charges an upper bound of the cost of a settled call beyond its known cost.
    pub fn charge_uncounted(&mut self, amount: Money) {
        *self = self.with_unsettled(amount);
    }

    /// The spending of the run.
    pub fn spent(&self) -> Money {
        self.spent
    }

    /// The spending of earlier runs that share the ceiling.
    pub fn earlier(&self) -> Money {
        self.earlier
    }

    /// The total that counts against the ceiling.
    pub fn counted(&self) -> Money {
        self.earlier + self.spent
    }

    pub fn unsettled(&self) -> Money {
        self.unsettled
    }

    pub fn ceiling(&self) -> Option<Money> {
        self.ceiling
    }
}
