package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/fairqueue"
	"sallyport.dev/sallyport/test/support/double/toys"
	"sallyport.dev/sallyport/webhooks/decision"
)

// served is a server of a gate, and how to begin a request to it that says so many bytes are to come.
func served(t *testing.T) (registry *prometheus.Registry, begin func(url string, length int) net.Conn) {
	t.Helper()
	registry = prometheus.NewRegistry()
	mux := http.NewServeMux()
	Register(decision.NewDecider(nil, toys.World{}, nil, time.Now), registry, mux.Handle, logr.Discard())
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return registry, func(query string, length int) net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST %s?%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", ValidatePath, query, length)
		return conn
	}
}

// checkRejected checks that one review was counted as rejected, for that cause.
func checkRejected(t *testing.T, registry *prometheus.Registry, cause string) {
	t.Helper()
	const name = "sallyport_rejected_reviews_total"
	want := fmt.Sprintf("# HELP %[1]s HTTP requests answered with an HTTP error instead of a decision, by cause.\n# TYPE %[1]s counter\n", name)
	for _, of := range []string{busy, noPolicies, notAReview, panicked, slow, tooLarge, unreadable} {
		for _, webhook := range []string{decision.Mutating, decision.Validating} {
			times := 0
			if of == cause && webhook == decision.Validating {
				times = 1
			}
			want += fmt.Sprintf("%s{cause=%q,webhook=%q} %d\n", name, of, webhook, times)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

// A review for which there is no place in its time gets HTTP 503, which is no fault of it.
func TestHandlerRejectsWhatIsTooMuch(t *testing.T) {
	registry := prometheus.NewRegistry()
	full := &handler{endpoint: decision.Validating, intake: newIntake(), rejected: newRejected(registry), logged: newLogged(), log: logr.Discard()}
	fill(t, full.intake.decisions, mostDecisions)
	w := httptest.NewRecorder()
	full.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, ValidatePath+"?timeout=1ms", strings.NewReader(toys.GoodReview)))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "too many concurrent reviews") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	checkRejected(t, registry, "busy")
}

// Any client can send what is no review: the log gets one line in a second, and the metric all of them.
func TestGarbageDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, lines := prometheus.NewRegistry(), 0
		log := funcr.New(func(string, string) { lines++ }, funcr.Options{})
		h := &handler{endpoint: decision.Validating, intake: newIntake(), rejected: newRejected(registry), logged: newLogged(), log: log}
		for second := range 3 {
			for range 10 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, ValidatePath, strings.NewReader("hello")))
			}
			if lines != second+1 {
				t.Errorf("after %d seconds there are %d lines", second, lines)
			}
			time.Sleep(time.Second)
		}
		if got := testutil.ToFloat64(h.rejected.WithLabelValues(decision.Validating, notAReview)); got != 30 {
			t.Errorf("%v requests were counted", got)
		}
	})
}

func answerOn(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response
}

// A body that does not come is waited for no longer than the API server waits for the answer.
func TestBodiesThatDoNotComeAreNotWaitedFor(t *testing.T) {
	for name, part := range map[string]string{"nothing comes": "", "a part comes": toys.GoodReview[:40], "much comes": strings.Repeat(" ", 3*usualBody)} {
		registry, begin := served(t)
		conn := begin("timeout=50ms", maxBody)
		if _, err := io.WriteString(conn, part); err != nil {
			t.Fatal(err)
		}
		if response := answerOn(t, conn); response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: got %s", name, response.Status)
		}
		checkRejected(t, registry, "slow")
	}
}

func TestHowLongBodiesAreWaitedFor(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": patience, "timeout=5s": 5 * time.Second, "timeout=30s": patience, "timeout=-1s": patience, "timeout=0s": patience, "timeout=x": patience, "timeout=1s&timeout=2s": time.Second,
	} {
		if got := patienceFor(httptest.NewRequest(http.MethodPost, "/validate?"+query, nil)); got != want {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}

// deadlines notes what is asked of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.last = at
	return nil
}

// A decision may take longer than the body was allowed to.
func TestDecisionsOutliveTheReading(t *testing.T) {
	for _, n := range []int{1, 2 * usualBody} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in := newIntake()
		_, release, err := in.read(ctx, w, httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(strings.Repeat(" ", n))))
		if err != nil || !w.last.IsZero() {
			t.Fatalf("after %d bytes the connection ends at %v: %v", n, w.last, err)
		}
		release()
	}
}

// Large bodies share the bytes that all may have together, from the first byte on, and wait for them; usual bodies need none.
func TestBytesInFlightAreBounded(t *testing.T) {
	in := newIntake()
	read := func(within time.Duration, n, announced int) (release func(), err error) {
		r := httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(strings.Repeat(" ", n)))
		r.ContentLength = int64(announced)
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		text, release, err := in.read(ctx, httptest.NewRecorder(), r)
		if err == nil && len(text) != n {
			t.Errorf("%d of %d bytes were read", len(text), n)
		}
		return release, err
	}
	var releases []func()
	for i, announced := range []int{maxBody, -1, maxBody, maxBody} {
		release, err := read(time.Minute, 2*usualBody, announced)
		if err != nil {
			t.Fatalf("large body %d: %v", i, err)
		}
		releases = append(releases, release)
	}
	if _, err := read(20*time.Millisecond, maxBody, maxBody); err != errBusy { //nolint:errorlint // it is never wrapped
		t.Errorf("one more large body: %v", err)
	}
	if release, err := read(time.Minute, usualBody, usualBody); err != nil {
		t.Errorf("a usual body beside them: %v", err)
	} else {
		release()
	}
	if _, err := read(time.Minute, maxBody+1, 10); err == nil {
		t.Error("a body that is longer than announced and allowed was read")
	}
	releases[0]()
	release, err := read(time.Minute, maxBody, maxBody)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	for _, release := range append(releases[1:], release) {
		release()
	}
	if !in.bytes.TryAcquire(mostBytes) {
		t.Error("bytes are lost after all were released")
	}
}

// Only few large reviews are decided at once, whether it is bytes or values that they have many of; the others go on beside them.
func TestLargeReviewsHavePlacesOfTheirOwn(t *testing.T) {
	in := newIntake()
	dense := strings.Replace(toys.GoodReview, `"red": true`, `"red": true, "list": [`+strings.Repeat("{},", usualValues)+`0]`, 1)
	long := strings.Replace(toys.GoodReview, `"red": true`, `"red": true, "text": "`+strings.Repeat("x", usualBody)+`"`, 1)
	fill(t, in.large, mostLarge)
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for name, text := range map[string]string{"many values": dense, "many bytes": long} {
		if _, _, err := in.decode(soon, []byte(text)); err != errBusy { //nolint:errorlint // it is never wrapped
			t.Errorf("%s beside %d large ones: %v", name, mostLarge, err)
		}
	}
	if _, leave, err := in.decode(t.Context(), []byte(toys.GoodReview)); err != nil {
		t.Errorf("a usual one: %v", err)
	} else {
		leave()
	}
	in.large.Release()
	for name, text := range map[string]string{"many values": dense, "many bytes": long, "no review": strings.Repeat("[", usualBody+1)} {
		if _, leave, err := in.decode(t.Context(), []byte(text)); err == nil {
			leave()
		} else if name != "no review" {
			t.Errorf("%s: %v", name, err)
		}
	}
	fill(t, in.large, 1)
	fill(t, in.decisions, mostDecisions)
}

// fill takes places, which are all that there are.
func fill(t *testing.T, places *fairqueue.Slots, n int) {
	t.Helper()
	for i := range n {
		if !places.TryAcquire() {
			t.Fatalf("only %d places are free", i)
		}
	}
	if places.TryAcquire() {
		t.Errorf("there are more than %d places", n)
	}
}

// Reviews of one namespace that wait for a place, however many, delay one of another by one place.
func TestNamespacesTakeTurnsAtPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		fill(t, in.decisions, mostDecisions)
		ctx, leave := context.WithCancel(t.Context())
		got := make(chan string, mostWaiting+1)
		wait := func(namespace string) {
			text := strings.Replace(toys.GoodReview, `"namespace": "ns"`, `"namespace": "`+namespace+`"`, 1)
			go func() {
				if _, _, err := in.decode(ctx, []byte(text)); err == nil {
					got <- namespace
				}
			}()
		}
		for range mostWaiting {
			wait("hostile")
		}
		synctest.Wait()
		wait("honest")
		synctest.Wait()
		in.decisions.Release()
		in.decisions.Release()
		if first, second := <-got, <-got; first != "honest" && second != "honest" {
			t.Error("two places went to the namespace that has many reviews waiting")
		}
		leave()
	})
}

// One user whose reviews take long, however many, leaves places to others.
func TestOneUserLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		ctx, leave := context.WithCancel(t.Context())
		var decided atomic.Int32
		decide := func(user string) {
			text := strings.Replace(toys.GoodReview, `"ann"`, `"`+user+`"`, 1)
			go func() {
				if _, done, err := in.decode(ctx, []byte(text)); err == nil {
					decided.Add(1)
					<-ctx.Done()
					done()
				}
			}()
		}
		for range mostDecisions {
			decide("mallory")
		}
		synctest.Wait()
		if n := decided.Load(); n != mostOfUser {
			t.Errorf("one user has %d places", n)
		}
		for range mostDecisions - mostOfUser {
			decide("alice")
		}
		synctest.Wait()
		if n := decided.Load(); n != mostDecisions {
			t.Errorf("%d are decided at once", n)
		}
		leave()
		synctest.Wait()
		fill(t, in.decisions, mostDecisions)
	})
}

// Whose share a review takes is read from where API servers have it; from one that is made up anything may come.
func TestShareOfAReview(t *testing.T) {
	for text, want := range map[string]string{
		`{"request": {"uid": "u", "namespace": "team-a", "userInfo": {"username": "ann"}, "object": {}}}`:              "namespace team-a",
		`{"request": {"userInfo": {"groups": ["g"], "username": "ann"}, "object": {"request": {"namespace": "no"}}}}`:  "user ann",
		`{"namespace": "no", "request": {"object": {"namespace": "no"}, "userInfo": {"extra": {"username": ["no"]}}}}`: "user ",
		`{"request": {"namespace": "a", "namespace": "b"`:                                                              "namespace a",
		`{"request": {"pad": "` + strings.Repeat("x", headBody) + `", "namespace": "a"}}`:                              "user ",
		`[`: "user ",
		``:  "user ",
	} {
		if got := shareOf([]byte(text)); got != want {
			t.Errorf("%.80s: %q, want %q", text, got, want)
		}
	}
}
