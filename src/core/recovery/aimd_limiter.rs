//! Adaptive concurrency: fewer concurrent requests when the service throttles, gradually more after
//! that.

/// A limiter of concurrent requests by additive increase, multiplicative decrease (AIMD). A
/// throttled request halves the limit; after as many answers as the limit, it rises by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the methods of a limiter return a changed limiter"]
pub struct AimdLimiter {
    most: u32,
    limit: u32,
    /// Answers since the last change of the limit.
    answers: u32,
    /// Number of times that the limit was lowered. Requests from before the last time carry no new
    /// information.
    epoch: u32,
}

impl AimdLimiter {
    /// Starts with the maximum. Never allows fewer than one.
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, limit: most, answers: 0, epoch: 0 }
    }

    /// The number of requests that may run at a time.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// The number by which the limit is currently below the maximum.
    pub fn withheld(self) -> u32 {
        self.most - self.limit
    }

    /// The epoch to remember for a request that begins now.
    pub fn epoch(self) -> u32 {
        self.epoch
    }

    /// Halves the limit after a throttled request that had begun in `epoch`. Requests that fail
    /// together count once.
    pub fn throttled(self, epoch: u32) -> Self {
        if epoch != self.epoch {
            return Self { answers: 0, ..self };
        }
        let limit = (self.limit / 2).max(1);
        Self { limit, answers: 0, epoch: self.epoch.wrapping_add(1), ..self }
    }

    /// Records an answered request.
    pub fn answered(self) -> Self {
        let answers = self.answers + 1;
        if self.limit == self.most {
            self
        } else if answers >= self.limit {
            Self { limit: self.limit + 1, answers: 0, ..self }
        } else {
            Self { answers, ..self }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_epoch_halve_the_limit_once_and_each_round_of_answers_adds_one() {
        let (full, mut limiter) = (AimdLimiter::new(8), AimdLimiter::new(8));
        for _ in 0..8 {
            limiter = limiter.throttled(full.epoch());
        }
        assert_eq!((limiter.limit(), limiter.withheld()), (4, 4));
        limiter = limiter.throttled(limiter.epoch());
        assert_eq!(limiter.limit(), 2);
        let mut rounds = Vec::new();
        while limiter.limit() < 8 {
            let before = limiter.limit();
            let mut answers = 0;
            while limiter.limit() == before {
                limiter = limiter.answered();
                answers += 1;
            }
            rounds.push((answers, limiter.limit()));
        }
        assert_eq!(rounds, [(2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]);
        assert_eq!(limiter.answered(), limiter, "and never more than there may be");
    }

    #[test]
    fn the_limit_never_falls_below_one() {
        let mut limiter = AimdLimiter::new(0);
        for _ in 0..3 {
            limiter = limiter.throttled(limiter.epoch());
            assert_eq!((limiter.limit(), limiter.withheld()), (1, 0));
        }
        assert_eq!(limiter.answered().limit(), 1);
    }
}
