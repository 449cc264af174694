//! Divides the budget of a batch among its tasks before they start.

use crate::recovery::Money;

/// The unit of a share, in pico-dollars: a millionth of a dollar, so that a share has an exact
/// decimal form.
const MICRO: u64 = 1_000_000;

/// The reason why a budget cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("the tasks' own limits add up to {sum}, which is more than the budget of {total}")]
    OwnLimitsExceed { sum: Money, total: Money },
    #[error("the budget of {total} leaves nothing for {tasks} tasks without a limit of their own")]
    NothingLeft { total: Money, tasks: usize },
}

/// Returns the share of each task: its own limit, or an equal part of the rest. The sum of the
/// shares does not exceed `total`.
///
/// # Errors
/// The tasks' own limits exceed the total, or leave nothing for the other tasks.
pub fn divide(total: Money, limits: &[Option<Money>]) -> Result<Vec<Money>, BudgetError> {
    let sum: Money = limits.iter().flatten().copied().sum();
    if sum > total {
        return Err(BudgetError::OwnLimitsExceed { sum, total });
    }
    let others = limits.iter().filter(|limit| limit.is_none()).count();
    let count = u64::try_from(others).unwrap_or(u64::MAX).max(1);
    let share = total.minus(sum).as_pico_dollars() / count / MICRO * MICRO;
    if others > 0 && share == 0 {
        return Err(BudgetError::NothingLeft { total, tasks: others });
    }
    Ok(limits.iter().map(|limit| limit.unwrap_or(Money::from_pico_dollars(share))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(amount: f64) -> Money {
        Money::from_dollars(amount).expect("an amount")
    }

    #[test]
    fn own_limits_count_first_and_the_rest_is_divided_evenly() {
        let shares = divide(dollars(1.0), &[None, Some(dollars(0.4)), None, None]);
        assert_eq!(shares, Ok(vec![dollars(0.2), dollars(0.4), dollars(0.2), dollars(0.2)]));
    }

    #[test]
    fn the_shares_never_exceed_the_total() {
        for count in 1..200 {
            let shares = divide(dollars(0.1), &vec![None; count]).expect("there is enough");
            let sum: Money = shares.iter().copied().sum();
            assert!(sum <= dollars(0.1), "{count}");
            assert!(sum > dollars(0.0997), "{count}: {sum}");
        }
    }

    #[test]
    fn a_budget_that_does_not_suffice_is_an_error() {
        let limits = [Some(dollars(0.6)), Some(dollars(0.6))];
        assert!(matches!(divide(dollars(1.0), &limits), Err(BudgetError::OwnLimitsExceed { .. })));
        let shares = divide(dollars(1.0), &[Some(dollars(1.0)), None]);
        assert_eq!(shares, Err(BudgetError::NothingLeft { total: dollars(1.0), tasks: 1 }));
        assert!(divide(dollars(0.000_001), &[None, None]).is_err());
    }
}
