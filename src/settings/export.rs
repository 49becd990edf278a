//! Settings of the continuous export of a running service.

use std::num::NonZeroU32;

use crate::data::Retention;
use crate::values::{Secret, half_a_key};
use crate::{nonzero, section};

section! {
    /// `[export]`
    pub struct Export {
        /// Destination: a directory or an `s3://` address; empty for no export.
        pub to: String = String::new(),
            "a directory or a bucket, such as \"/srv/lake\" or \"s3://bucket/prefix\"";
        /// Number of ledgers that are exported together.
        pub ledgers_per_file: NonZeroU32 = nonzero!(1000);
        /// Whether the tables of all programs are exported as well.
        pub programs: bool = true;
        /// Region of the bucket; empty uses the environment's.
        pub s3_region: String = String::new(), "a region, such as \"us-east-2\"";
        /// Address of an S3-compatible server; empty uses the environment's, else AWS.
        pub s3_endpoint: String = String::new(), "an address, such as \"https://s3.example.org\"";
        /// Access key ID; empty uses the environment's credentials.
        pub s3_access_key_id: String = String::new(), "the public half of an access key";
        /// Secret access key of `s3_access_key_id`.
        pub s3_secret_access_key: Secret = Secret::default(), "the secret half of an access key";
    }
}

impl Export {
    /// Returns the destination; `None` when nothing is exported.
    pub fn destination(&self) -> Option<&str> {
        (!self.to.is_empty()).then_some(&*self.to)
    }

    /// Returns an error message when settings contradict each other.
    pub fn validation_error(&self, retention: &Retention) -> Option<String> {
        let half = half_a_key("export", &self.s3_access_key_id, &self.s3_secret_access_key);
        if half.is_some() {
            return half;
        }
        self.destination()?;
        let kept = [("events", retention.events), ("transactions", retention.transactions)];
        let (name, kept) = kept.into_iter().find(|(_, kept)| {
            let with_waiting = u64::from(*kept) + u64::from(retention.wait_for_consumers);
            *kept > 0 && with_waiting < u64::from(self.ledgers_per_file.get())
        })?;
        Some(format!(
            "export.ledgers_per_file is {}, but retention.{name} keeps {kept} ledgers and \
             retention.wait_for_consumers {} more: no file would ever be complete",
            self.ledgers_per_file, retention.wait_for_consumers
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_larger_than_retention_allows_are_refused() {
        let retention = |events, wait_for_consumers| Retention {
            raw_ledgers: 0,
            events,
            transactions: 0,
            wait_for_consumers,
        };
        let mut export = Export::default();
        assert_eq!(export.validation_error(&retention(1, 0)), None, "nothing is exported");
        export.to = "lake".to_owned();
        assert_eq!(export.validation_error(&retention(0, 0)), None);
        assert_eq!(export.validation_error(&retention(500, 500)), None);
        let error = export.validation_error(&retention(500, 499)).unwrap();
        assert!(error.contains("retention.events keeps 500 ledgers and"), "{error}");
        export.s3_access_key_id = "AKID".to_owned();
        let error = export.validation_error(&retention(0, 0)).unwrap();
        assert!(error.contains("belong together"), "{error}");
    }
}
