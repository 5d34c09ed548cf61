package facts_test

import (
	"testing"
	"time"

	"sallyport.dev/sallyport/webhooks/engine"
)

func TestTmpHeard(t *testing.T) {
	f := newRunning(t, nil)
	read := engine.Read{APIVersion: "v1", Kind: "Node"}
	f.awaitLack(t, "", read)
	for range 9 {
		t.Log(time.Now().Unix(), int64(f.gauge(t, "sallyport_fact_cache_heard_timestamp_seconds", "v1/Node")))
		time.Sleep(20 * time.Second)
	}
}
