package webhooks

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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sallyport.dev/sallyport/fair"
)

// served is a server of a gate with one policy, and how to begin a request to it that says so many bytes are to come.
func served(t *testing.T) (f *fixture, url string, begin func(url string, length int) net.Conn) {
	t.Helper()
	f = newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
	mux := http.NewServeMux()
	f.Register(mux.Handle, logr.Discard())
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return f, server.URL, func(query string, length int) net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST %s?%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", ValidatePath, query, length)
		return conn
	}
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

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+ValidatePath+"?timeout=60s", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response
}

// A body that does not come is waited for no longer than the API server waits for the answer.
func TestBodiesThatDoNotComeAreNotWaitedFor(t *testing.T) {
	for name, part := range map[string]string{"nothing comes": "", "a part comes": goodReview[:40], "much comes": strings.Repeat(" ", 3*usualBody)} {
		f, _, begin := served(t)
		conn := begin("timeout=50ms", maxBody)
		if _, err := io.WriteString(conn, part); err != nil {
			t.Fatal(err)
		}
		if response := answerOn(t, conn); response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: got %s", name, response.Status)
		}
		if n := testutil.ToFloat64(f.recorder.metrics.rejected.WithLabelValues(Validating, "slow")); n != 1 {
			t.Errorf("%s: counted %v slow reviews", name, n)
		}
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
		b, err := in.read(ctx, w, httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(strings.Repeat(" ", n))))
		if err != nil || !w.last.IsZero() {
			t.Errorf("after %d bytes the connection ends at %v: %v", n, w.last, err)
		}
		b.giveBack()
	}
}

// Whoever has been sending longest gives way, and never keeps others out.
func TestSlowReadersGiveWay(t *testing.T) {
	_, url, begin := served(t)
	oldest := begin("timeout=60s", 100)
	answered := make(chan int, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(oldest), nil)
		if err != nil {
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	for status := 0; status == 0; {
		begin("timeout=60s", 100)
		select {
		case status = <-answered:
			if status != http.StatusRequestTimeout {
				t.Errorf("the oldest got %d", status)
			}
		default:
		}
	}
	if response := post(t, url, goodReview); response.StatusCode != http.StatusOK {
		t.Errorf("an honest review got %s", response.Status)
	}
}

// Large bodies take from what all have together, and one that finds nothing left waits for its turn; usual ones need nothing.
func TestBytesInFlightAreBounded(t *testing.T) {
	in := newIntake()
	in.left = 0
	read := func(ctx context.Context, n int) (*body, error) {
		r := httptest.NewRequest(http.MethodPost, "/validate", strings.NewReader(strings.Repeat(" ", n)))
		return in.read(ctx, httptest.NewRecorder(), r)
	}
	if b, err := read(t.Context(), usualBody); err != nil || b.taken > 0 {
		t.Errorf("a usual body: %v", err)
	}
	first, err := read(t.Context(), maxBody)
	if err != nil || !first.hasTurn {
		t.Fatalf("the first that finds nothing left: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := read(soon, maxBody); err != errBusy { //nolint:errorlint // it is never wrapped
		t.Errorf("the second: %v", err)
	}
	first.giveBack()
	second, err := read(t.Context(), maxBody)
	if err != nil {
		t.Fatalf("after the first: %v", err)
	}
	second.giveBack()
	in.left = mostBytes
	all := make([]*body, 0, 8)
	for range cap(all) {
		b, err := read(t.Context(), maxBody/2)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if in.left >= mostBytes/4 || len(in.turn) > 0 {
		t.Errorf("%d bytes are left beside %d bodies", in.left, len(all))
	}
	for _, b := range all {
		b.giveBack()
	}
	if in.left != mostBytes || len(in.reading) != 0 {
		t.Errorf("%d bytes are left, and %d bodies read, after all were given back", in.left, len(in.reading))
	}
}

// Only few large reviews are decided at once, whether it is bytes or values that they have many of; the others go on beside them.
func TestLargeReviewsHavePlacesOfTheirOwn(t *testing.T) {
	in := newIntake()
	dense := strings.Replace(goodReview, `"red": true`, `"red": true, "list": [`+strings.Repeat("{},", usualValues)+`0]`, 1)
	long := strings.Replace(goodReview, `"red": true`, `"red": true, "text": "`+strings.Repeat("x", usualBody)+`"`, 1)
	fill(t, in.large, mostLarge)
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for name, text := range map[string]string{"many values": dense, "many bytes": long} {
		if _, _, err := in.decode(soon, []byte(text)); err != errBusy { //nolint:errorlint // it is never wrapped
			t.Errorf("%s beside %d large ones: %v", name, mostLarge, err)
		}
	}
	if _, leave, err := in.decode(t.Context(), []byte(goodReview)); err != nil {
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
func fill(t *testing.T, places *fair.Slots, n int) {
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
			text := strings.Replace(goodReview, `"namespace": "ns"`, `"namespace": "`+namespace+`"`, 1)
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
			text := strings.Replace(goodReview, `"ann"`, `"`+user+`"`, 1)
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
