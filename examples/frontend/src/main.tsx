import { useState } from "react";
import { createRoot } from "react-dom/client";
import { Events } from "./Events";

// The token and the contract are typed in: they belong neither into the code nor into the address.
function Page() {
  const [asked, setAsked] = useState<{ token: string; contract: string }>();
  if (asked) return <Events base="/rest" {...asked} />;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        setAsked({ token: String(form.get("token")), contract: String(form.get("contract")) });
      }}
    >
      <input name="contract" placeholder="contract: C…" required />
      <input name="token" type="password" placeholder="token" required />
      <button>Show</button>
    </form>
  );
}

createRoot(document.getElementById("root")!).render(<Page />);
