//! How many ledgers to ask for at once: fewer after a failure that a smaller page may avoid, more
//! after pages that came whole. Pure.

/// Ledgers of the first page.
const FIRST: u32 = 8;
/// A page is not made larger when it would then hold more bytes of ledgers than this.
const ENOUGH_BYTES: u64 = 16 << 20;
/// Whole pages until the size grows for the first time.
const FEWEST_SUCCESSES: u32 = 2;
/// Each shrinking doubles the whole pages that growing takes, up to this.
const MOST_SUCCESSES: u32 = 16;

/// The size of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSize {
    ledgers: u32,
    most: u32,
    successes: u32,
    needed: u32,
}

impl PageSize {
    /// Begins at eight ledgers and never exceeds `most`.
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { ledgers: FIRST.min(most), most, successes: 0, needed: FEWEST_SUCCESSES }
    }

    /// Ledgers to ask for.
    pub fn ledgers(&self) -> u32 {
        self.ledgers
    }

    /// A page of `asked` ledgers was answered with `ledgers` of together `bytes` bytes. Only a whole
    /// page shows that more may be asked for.
    pub fn answered(&mut self, asked: u32, ledgers: u32, bytes: u64) {
        let each = bytes / u64::from(ledgers.max(1));
        let enough = u32::try_from(ENOUGH_BYTES / each.max(1)).unwrap_or(u32::MAX).max(1);
        if bytes > 2 * ENOUGH_BYTES {
            self.ledgers = self.ledgers.min(enough);
            self.successes = 0;
        }
        if ledgers < asked || asked < self.ledgers || self.ledgers == self.most {
            return;
        }
        self.successes += 1;
        let larger = (self.ledgers + (self.ledgers / 2).max(1)).min(self.most);
        if self.successes >= self.needed && larger <= enough {
            self.ledgers = larger;
            self.successes = 0;
        }
    }

    /// A page was too much.
    pub fn shrink(&mut self) {
        self.ledgers = (self.ledgers / 2).max(1);
        self.successes = 0;
        self.needed = (self.needed * 2).min(MOST_SUCCESSES);
    }

    /// The server says how many ledgers it yields at most. Returns whether that is news.
    pub fn limit_is(&mut self, most: u32) -> bool {
        let is_news = most >= 1 && most < self.ledgers;
        if is_news {
            self.most = most;
            self.ledgers = most;
            self.successes = 0;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of the pages that follow when ledgers have `bytes` bytes and all pages come whole.
    fn sizes(page: &mut PageSize, pages: usize, bytes: u64) -> Vec<u32> {
        (0..pages)
            .map(|_| {
                let size = page.ledgers();
                page.answered(size, size, u64::from(size) * bytes);
                size
            })
            .collect()
    }

    #[test]
    fn grows_slowly_to_the_most() {
        let mut page = PageSize::new(50);
        let grown = sizes(&mut page, 14, 10_000);
        assert_eq!(grown, [8, 8, 12, 12, 18, 18, 27, 27, 40, 40, 50, 50, 50, 50]);
    }

    #[test]
    fn large_ledgers_stay_few() {
        let mut page = PageSize::new(200);
        sizes(&mut page, 100, 1_343_024);
        assert_eq!(page.ledgers(), 12);
        let mut page = PageSize::new(200);
        assert!(sizes(&mut page, 100, 2 << 20).iter().all(|size| *size == 8));
        // They were small before.
        let mut page = PageSize::new(200);
        assert_eq!(sizes(&mut page, 100, 10).last(), Some(&200));
        page.answered(200, 90, 90 << 20);
        assert_eq!(page.ledgers(), 16);
    }

    #[test]
    fn halves_down_to_one_and_returns_more_slowly() {
        let mut page = PageSize::new(200);
        let shrunk: Vec<_> = (0..5)
            .map(|_| {
                page.shrink();
                page.ledgers()
            })
            .collect();
        assert_eq!(shrunk, [4, 2, 1, 1, 1]);
        let grown = sizes(&mut page, 17, 1000);
        assert_eq!(grown, [vec![1; 16], vec![2]].concat());
    }

    #[test]
    fn pages_that_are_not_whole_prove_nothing() {
        let mut page = PageSize::new(200);
        for _ in 0..100 {
            page.answered(8, 1, 1000);
            page.answered(4, 4, 1000);
        }
        assert_eq!(page, PageSize::new(200));
    }

    #[test]
    fn learns_the_most_that_the_server_yields() {
        let mut page = PageSize::new(200);
        assert!(page.limit_is(5));
        assert_eq!(page.ledgers(), 5);
        assert_eq!(sizes(&mut page, 20, 10), vec![5; 20]);
        assert!(!page.limit_is(5), "it was asked for no more than that");
        assert!(!page.limit_is(0));
        assert_eq!(PageSize::new(0).ledgers(), 1);
    }
}
