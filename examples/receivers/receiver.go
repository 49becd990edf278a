// go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type delivery struct {
	Event struct {
		ContractID string `json:"contract_id"`
		Body       struct {
			V0 json.RawMessage `json:"v0"`
		} `json:"body"`
	} `json:"event"`
}

func main() {
	secret, port := os.Getenv("WEBHOOK_SECRET"), os.Getenv("PORT")
	if secret == "" {
		log.Fatal("set WEBHOOK_SECRET to the subscription's secret")
	}
	if port == "" {
		port = "9100"
	}
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		code := hmac.New(sha256.New, []byte(secret))
		code.Write(body)
		given, err := hex.DecodeString(r.Header.Get("X-Service-Signature"))
		if err != nil || !hmac.Equal(given, code.Sum(nil)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var it delivery
		if err := json.Unmarshal(body, &it); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		// Delivery is at least once: store this id, or the event's, with the effects, and skip repeats.
		fmt.Println(r.Header.Get("X-Service-Delivery"), it.Event.ContractID, string(it.Event.Body.V0))
		w.WriteHeader(http.StatusNoContent)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, nil))
}
