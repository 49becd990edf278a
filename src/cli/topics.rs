//! Options that select events by their topics.

use clap::Args;

#[derive(Debug, Args)]
pub struct Topics {
    /// Only events with this first topic, such as transfer, u64:5, G…, or the base64 XDR of an ScVal. --topic2 to --topic4 likewise
    #[arg(long, value_name = "VALUE")]
    pub topic1: Option<String>,
    #[arg(long, value_name = "VALUE")]
    topic2: Option<String>,
    #[arg(long, value_name = "VALUE")]
    topic3: Option<String>,
    #[arg(long, value_name = "VALUE")]
    topic4: Option<String>,
}

impl Topics {
    /// Names and values as the parameters of a request.
    pub fn parameters(&self) -> [(&'static str, Option<String>); 4] {
        [
            ("topic1", self.topic1.clone()),
            ("topic2", self.topic2.clone()),
            ("topic3", self.topic3.clone()),
            ("topic4", self.topic4.clone()),
        ]
    }
}
