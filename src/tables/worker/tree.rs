//! A JSON text as a tree. Plans of queries are nested more deeply than JSON parsers allow, so neither
//! reading a text nor walking through it recurses.

/// Position of the outermost value.
pub const ROOT: usize = 0;

/// The values of a JSON text. A value stands before all that are in it.
#[derive(Debug)]
pub struct Tree<'j> {
    nodes: Vec<Node<'j>>,
}

#[derive(Debug)]
struct Node<'j> {
    parent: usize,
    /// Name in the object around it; empty for others.
    key: &'j str,
    value: Value<'j>,
    children: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value<'j> {
    Object,
    List,
    /// Any other value: a text without its quotes, in which nothing is unescaped.
    Plain(&'j str),
}

impl<'j> Tree<'j> {
    /// Reads a text; `None` when it is not complete JSON.
    pub fn read(json: &'j str) -> Option<Self> {
        let mut tree = Self { nodes: Vec::new() };
        let (mut open, mut key, mut rest) = (Vec::new(), "", json);
        while let Some(&byte) = rest.as_bytes().first() {
            let mut length = 1;
            match byte {
                b'{' => open.push(tree.add(&open, &mut key, Value::Object)),
                b'[' => open.push(tree.add(&open, &mut key, Value::List)),
                b'}' | b']' => drop(open.pop()?),
                b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
                b'"' => {
                    let text = quoted(rest)?;
                    length = text.len() + 2;
                    let is_key = rest.as_bytes().get(length) == Some(&b':');
                    if is_key {
                        key = text;
                    } else {
                        tree.add(&open, &mut key, Value::Plain(text));
                    }
                }
                _ => {
                    length = rest.find([',', '}', ']']).unwrap_or(rest.len());
                    tree.add(&open, &mut key, Value::Plain(&rest[..length]));
                }
            }
            rest = &rest[length..];
        }
        (open.is_empty() && !tree.nodes.is_empty()).then_some(tree)
    }

    fn add(&mut self, open: &[usize], key: &mut &'j str, value: Value<'j>) -> usize {
        let (at, parent) = (self.nodes.len(), open.last().copied().unwrap_or(ROOT));
        if !open.is_empty() {
            self.nodes[parent].children.push(at);
        }
        self.nodes.push(Node { parent, key: std::mem::take(key), value, children: Vec::new() });
        at
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The values directly in an object or a list.
    pub fn children(&self, at: usize) -> &[usize] {
        &self.nodes[at].children
    }

    /// The object or list around a value.
    pub fn parent(&self, at: usize) -> usize {
        self.nodes[at].parent
    }

    /// The name of a value in the object around it; empty for others.
    pub fn key(&self, at: usize) -> &'j str {
        self.nodes[at].key
    }

    /// Whether a value is an object.
    pub fn is_object(&self, at: usize) -> bool {
        self.nodes[at].value == Value::Object
    }

    /// The member of an object by its name.
    pub fn get(&self, at: usize, key: &str) -> Option<usize> {
        self.children(at).iter().copied().find(|child| self.nodes[*child].key == key)
    }

    /// The text or number that is the member of an object.
    pub fn text(&self, at: usize, key: &str) -> Option<&'j str> {
        self.get(at, key).and_then(|member| self.plain(member))
    }

    /// A text or a number.
    pub fn plain(&self, at: usize) -> Option<&'j str> {
        match self.nodes[at].value {
            Value::Plain(text) => Some(text),
            Value::Object | Value::List => None,
        }
    }
}

/// Returns the text in quotes with which `json` begins.
fn quoted(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut end = 1;
    while *bytes.get(end)? != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    json.get(1..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let json = r#"{"a":{"b":[1,{"c":"x\"}ü"}]},"d":null}"#;
        let tree = Tree::read(json).unwrap();
        let list = tree.get(tree.get(ROOT, "a").unwrap(), "b").unwrap();
        let [one, object] = *tree.children(list) else { panic!("{tree:?}") };
        assert_eq!((tree.plain(one), tree.text(object, "c")), (Some("1"), Some("x\\\"}ü")));
        assert!(tree.is_object(object) && !tree.is_object(list));
        assert_eq!((tree.parent(object), tree.key(list), tree.key(object)), (list, "b", ""));
        assert_eq!((tree.text(ROOT, "d"), tree.text(ROOT, "e")), (Some("null"), None));
        for end in 0..json.len() {
            let cut = json.get(..end).is_none_or(|cut| Tree::read(cut).is_none());
            assert!(cut, "{}", &json[..end]);
        }
        assert!(Tree::read("]").is_none());
    }

    #[test]
    fn depth_has_no_limit() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert_eq!(Tree::read(&deep).unwrap().len(), 1_000_000);
    }
}
