//! How many may ask the service at a time: fewer when it is too busy, more again bit by bit.

/// Additive increase, multiplicative decrease. A service that says that it is too busy is asked by
/// half as many; one that has answered each of them once, by one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AimdLimiter {
    most: u32,
    limit: u32,
    /// Answers since the limit was changed last.
    answers: u32,
    /// How often it was lowered. What was asked before then says nothing new about it.
    era: u32,
}

impl AimdLimiter {
    /// Begins with as many as there may ever be, and never allows fewer than one.
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, limit: most, answers: 0, era: 0 }
    }

    /// How many may ask at a time.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many that could be allowed are not, for now.
    pub fn withheld(self) -> u32 {
        self.most - self.limit
    }

    /// What a request is to be remembered by that begins now.
    pub fn era(self) -> u32 {
        self.era
    }

    /// The service was too busy for a request that had begun in `era`. Many that fail together
    /// are one sign, and not many.
    #[must_use]
    pub fn throttled(self, era: u32) -> Self {
        if era != self.era {
            return Self { answers: 0, ..self };
        }
        let limit = (self.limit / 2).max(1);
        Self { limit, answers: 0, era: self.era.wrapping_add(1), ..self }
    }

    /// The service answered.
    #[must_use]
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
    fn many_that_fail_together_halve_it_once_and_every_round_of_answers_adds_one() {
        let (full, mut throng) = (AimdLimiter::new(8), AimdLimiter::new(8));
        for _ in 0..8 {
            throng = throng.throttled(full.era());
        }
        assert_eq!((throng.limit(), throng.withheld()), (4, 4));
        throng = throng.throttled(throng.era());
        assert_eq!(throng.limit(), 2);
        let mut rounds = Vec::new();
        while throng.limit() < 8 {
            let before = throng.limit();
            let mut answers = 0;
            while throng.limit() == before {
                throng = throng.answered();
                answers += 1;
            }
            rounds.push((answers, throng.limit()));
        }
        assert_eq!(rounds, [(2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]);
        assert_eq!(throng.answered(), throng, "and never more than there may be");
    }

    #[test]
    fn one_is_always_allowed() {
        let mut throng = AimdLimiter::new(0);
        for _ in 0..3 {
            throng = throng.throttled(throng.era());
            assert_eq!((throng.limit(), throng.withheld()), (1, 0));
        }
        assert_eq!(throng.answered().limit(), 1);
    }
}
