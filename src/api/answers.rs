//! Finished answers, kept until the store changes.
//!
//! Clients poll: many ask for the same page again and again, and between two ledgers its answer is the
//! same to the byte. To look it up takes a fraction of what it takes to read, spell out and compress
//! it, and it is sent from where it lies, without a copy.
//!
//! What is kept are answers of the routes that the table marks as [`super::route::Work::Kept`] or
//! [`super::route::Work::CurrentKept`]: their handlers look at nothing but the store and the call, neither the clock nor
//! the caller. Whether the
//! caller may ask, and how often, is decided before anybody looks here. An answer counts in the
//! [`Generation`] that was read before its first row, and in no other, so none outlives what it says;
//! it takes its place until the same question is asked again, or others need the room.

use quick_cache::Equivalent;

use super::answer::Finished;
use crate::store::{Generation, Kept};

/// Bytes of answers that are kept.
const CAPACITY: u64 = 32 << 20;
/// Bytes of an answer, with its question, beyond which it is not kept: a few huge pages must not push
/// out what everybody asks for. Some 800 usual events fit, a thousand when they are compressed.
const LARGEST: u64 = 512 << 10;
/// What a page of a hundred events takes; only for sizing the table.
const USUAL_ANSWER: u64 = 64 << 10;
/// What an entry takes beside the bytes of its question and its body.
const ENTRY: u64 = 256;

/// All that an answer depends on, beside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Question<T> {
    /// The path, as it came, without a slash at its end.
    pub path: T,
    /// The query, as it came.
    pub query: T,
    /// Whether the client would rather have it compressed.
    pub wants_gzip: bool,
}

/// A question that outlives its request.
type OwnQuestion = Question<Box<str>>;

impl Equivalent<OwnQuestion> for Question<&str> {
    fn equivalent(&self, own: &OwnQuestion) -> bool {
        self.wants_gzip == own.wants_gzip && self.path == &*own.path && self.query == &*own.query
    }
}

impl From<&Question<&str>> for OwnQuestion {
    fn from(question: &Question<&str>) -> Self {
        let Question { path, query, wants_gzip } = *question;
        Self { path: path.into(), query: query.into(), wants_gzip }
    }
}

/// The answers that are kept.
pub(super) struct Answers(Kept<OwnQuestion, Finished>);

fn weight(path: &str, query: &str, answer: &Finished) -> u64 {
    ENTRY + (path.len() + query.len() + answer.body.len()) as u64
}

impl Answers {
    pub(super) fn new() -> Self {
        Self(Kept::new(CAPACITY, USUAL_ANSWER, LARGEST))
    }

    /// The answer to a question, if it was given in this generation and kept.
    pub(super) fn get(
        &self,
        question: &Question<&str>,
        generation: Generation,
    ) -> Option<Finished> {
        self.0.get(question, generation)
    }

    /// Keeps an answer to a question, all of which was read after `generation` had been asked for.
    pub(super) fn keep(
        &self,
        question: &Question<&str>,
        generation: Generation,
        answer: &Finished,
    ) {
        let weight = weight(question.path, question.query, answer);
        self.0.keep(question, generation, weight, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::*;

    fn question<'a>(path: &'a str, query: &'a str) -> Question<&'a str> {
        Question { path, query, wants_gzip: false }
    }

    fn answer(length: u64) -> Finished {
        Finished::new(Answer::json(vec![b'x'; length as usize]), None)
    }

    #[test]
    fn an_answer_holds_for_one_generation() {
        let answers = Answers::new();
        let [before, now] = [0, 1].map(Generation::after);
        let page = question("contract", "limit=1");
        assert_eq!(answers.get(&page, before), None);
        let (old, new) = (answer(10), answer(20));
        answers.keep(&page, before, &old);
        assert_eq!(answers.get(&page, before), Some(old.clone()));
        assert_eq!(answers.get(&page, now), None);
        answers.keep(&page, now, &new);
        assert_eq!((answers.get(&page, now), answers.get(&page, before)), (Some(new), None));
        // A reader that began in the old generation and ends late: what is lost is time.
        answers.keep(&page, before, &old);
        assert_eq!(answers.get(&page, now), None);
        assert_eq!(answers.0.len(), 1, "the same question takes the same place");
    }

    #[test]
    fn what_is_kept_is_sent_without_a_copy() {
        let answers = Answers::new();
        let now = Generation::after(0);
        let made = answer(1000);
        answers.keep(&question("", ""), now, &made);
        let kept = answers.get(&question("", ""), now).unwrap();
        assert_eq!(kept.body.as_ptr(), made.body.as_ptr());
    }

    #[test]
    fn an_answer_takes_no_more_than_its_bytes() {
        let roomy = |length| {
            let mut bytes = Vec::with_capacity(1 << 20);
            bytes.resize(length, b'x');
            bytes
        };
        for (compressed, length) in [(None, 2), (Some(roomy(3)), 3)] {
            let finished = Finished::new(Answer::json(roomy(2)), compressed);
            assert_eq!(finished.body.try_into_mut().map(|body| body.capacity()), Ok(length));
        }
    }

    #[test]
    fn questions_are_told_apart_by_all_that_they_say() {
        let different = [
            question("a", "b"),
            question("ab", ""),
            question("", "ab"),
            question("b", "a"),
            Question { wants_gzip: true, ..question("a", "b") },
        ];
        let answers = Answers::new();
        let now = Generation::after(7);
        for (length, question) in (0..).zip(&different) {
            assert_eq!(answers.get(question, now), None);
            answers.keep(question, now, &answer(length));
        }
        for (length, question) in (0..).zip(&different) {
            assert_eq!(answers.get(question, now), Some(answer(length)));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let answers = Answers::new();
        let now = Generation::after(0);
        for number in 0..2_000u64 {
            let query = format!("offset={number}");
            answers.keep(&question("", &query), now, &answer(number * 97 % (128 << 10)));
            assert!(answers.0.weight() <= CAPACITY);
        }
        assert!(answers.0.weight() > CAPACITY / 2, "what there is room for is kept");
        // Answers without a body are not free.
        let empty = Answers::new();
        for number in 0..500_000 {
            empty.keep(&question("", &format!("{number}")), now, &answer(0));
        }
        assert!(empty.0.len() as u64 <= CAPACITY / ENTRY);
    }

    #[test]
    fn huge_pages_do_not_push_out_what_is_asked_again() {
        const POLLS_PER_HUGE_PAGE: usize = 4;
        let answers = Answers::new();
        let now = Generation::after(0);
        let huge = question("", "limit=1000");
        answers.keep(&huge, now, &answer(LARGEST));
        assert_eq!(answers.get(&huge, now), None, "too large to be kept");
        let polled: Vec<String> = (0..100).map(|number| format!("poll={number}")).collect();
        let mut polls = polled.iter().cycle();
        let mut made = 0;
        for number in 0..1_000 {
            let query = format!("offset={number}");
            answers.keep(&question("", &query), now, &answer(LARGEST - 1024));
            for query in polls.by_ref().take(POLLS_PER_HUGE_PAGE) {
                if answers.get(&question("", query), now).is_none() {
                    made += 1;
                    answers.keep(&question("", query), now, &answer(64 << 10));
                }
            }
        }
        assert!((polled.len()..2 * polled.len()).contains(&made), "{made} answers were made");
    }
}
