//! Chooses how many ledgers to request at once: fewer after a failure that a smaller page may
//! avoid, more after complete pages. Performs no I/O.

/// Number of ledgers in the first page.
const FIRST: u32 = 8;
/// Maximum expected size of a page in bytes: the page does not grow beyond it.
const ENOUGH_BYTES: u64 = 16 << 20;
/// Number of complete pages before the size grows for the first time.
const FEWEST_SUCCESSES: u32 = 2;
/// Maximum number of complete pages before the size grows; each shrink doubles that number up to
/// here.
const MAX_SUCCESSES: u32 = 16;

/// Size of the next page, in ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSize {
    ledgers: u32,
    most: u32,
    successes: u32,
    needed: u32,
}

impl PageSize {
    /// Starts at eight ledgers and never exceeds `most`.
    pub fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { ledgers: FIRST.min(most), most, successes: 0, needed: FEWEST_SUCCESSES }
    }

    /// Returns the number of ledgers to request.
    pub fn ledgers(&self) -> u32 {
        self.ledgers
    }

    /// Records that a request for `requested` ledgers returned `ledgers` with `bytes` bytes in total.
    /// Only complete pages let the size grow.
    pub fn record_response(&mut self, requested: u32, ledgers: u32, bytes: u64) {
        let each = bytes / u64::from(ledgers.max(1));
        let enough = u32::try_from(ENOUGH_BYTES / each.max(1)).unwrap_or(u32::MAX).max(1);
        if bytes > 2 * ENOUGH_BYTES {
            self.ledgers = self.ledgers.min(enough);
            self.successes = 0;
        }
        if ledgers < requested || requested < self.ledgers || self.ledgers == self.most {
            return;
        }
        self.successes += 1;
        let larger = (self.ledgers + (self.ledgers / 2).max(1)).min(self.most);
        if self.successes >= self.needed && larger <= enough {
            self.ledgers = larger;
            self.successes = 0;
        }
    }

    /// Halves the size after a page that was too large, and doubles the number of complete pages
    /// before it grows again.
    pub fn shrink(&mut self) {
        self.ledgers = (self.ledgers / 2).max(1);
        self.successes = 0;
        self.needed = (self.needed * 2).min(MAX_SUCCESSES);
    }

    /// Applies the maximum page size that the server reported. Returns whether that makes the next
    /// page smaller.
    pub fn apply_limit(&mut self, most: u32) -> bool {
        let shrinks = most >= 1 && most < self.ledgers;
        if shrinks {
            self.most = most;
            self.ledgers = most;
            self.successes = 0;
        }
        shrinks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes of the next `pages` pages when each ledger has `bytes` bytes and every
    /// page is complete.
    fn sizes(page: &mut PageSize, pages: usize, bytes: u64) -> Vec<u32> {
        (0..pages)
            .map(|_| {
                let size = page.ledgers();
                page.record_response(size, size, u64::from(size) * bytes);
                size
            })
            .collect()
    }

    #[test]
    fn pages_grow_slowly_to_the_maximum() {
        let mut page = PageSize::new(50);
        let grown = sizes(&mut page, 14, 10_000);
        assert_eq!(grown, [8, 8, 12, 12, 18, 18, 27, 27, 40, 40, 50, 50, 50, 50]);
    }

    #[test]
    fn pages_of_large_ledgers_stay_small() {
        let mut page = PageSize::new(200);
        sizes(&mut page, 100, 1_343_024);
        assert_eq!(page.ledgers(), 12);
        let mut page = PageSize::new(200);
        assert!(sizes(&mut page, 100, 2 << 20).iter().all(|size| *size == 8));
        // The ledgers become large after the size has grown to the maximum.
        let mut page = PageSize::new(200);
        assert_eq!(sizes(&mut page, 100, 10).last(), Some(&200));
        page.record_response(200, 90, 90 << 20);
        assert_eq!(page.ledgers(), 16);
    }

    #[test]
    fn pages_shrink_by_half_and_grow_back_slowly() {
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
    fn incomplete_pages_do_not_change_the_size() {
        let mut page = PageSize::new(200);
        for _ in 0..100 {
            page.record_response(8, 1, 1000);
            page.record_response(4, 4, 1000);
        }
        assert_eq!(page, PageSize::new(200));
    }

    #[test]
    fn the_server_limit_is_learned() {
        let mut page = PageSize::new(200);
        assert!(page.apply_limit(5));
        assert_eq!(page.ledgers(), 5);
        assert_eq!(sizes(&mut page, 20, 10), vec![5; 20]);
        assert!(!page.apply_limit(5), "it was asked for no more than that");
        assert!(!page.apply_limit(0));
        assert_eq!(PageSize::new(0).ledgers(), 1);
    }
}
