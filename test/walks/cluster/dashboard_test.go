package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/alerts"
	"sallyport.dev/sallyport/test/support/step"
)

// series are what Prometheus answers to a query.
type series []struct{ Metric map[string]string }

// A Prometheus that scrapes the manager, with the labels that a ServiceMonitor adds, evaluates the queries of the dashboard. A query that
// selects nothing within its metrics has an answer, and each label of a legend is in its series.
func TestDashboardOfARun(t *testing.T) {
	stack.Up(t)
	ask := prometheus(step.T{T: t})
	legend := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, q := range alerts.Queries(t) {
		expr := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(q.Expr)
		found, err := ask(expr)
		if err != nil {
			t.Errorf("%s: %v", q.Alert, err)
		}
		if len(found) == 0 && !strings.ContainsAny(expr, "{>") {
			for _, s := range alerts.In(expr) {
				if exported, err := ask(s.Metric); err != nil || len(exported) > 0 {
					t.Errorf("%s: there is %s, but no answer to %s: %v", q.Alert, s.Metric, expr, err)
				}
			}
		}
		for _, s := range found {
			for _, label := range legend.FindAllStringSubmatch(q.Legend, -1) {
				if _, has := s.Metric[label[1]]; !has {
					t.Errorf("%s: %v has no label for the legend %s", q.Alert, s.Metric, q.Legend)
				}
			}
		}
	}
}

// prometheus starts the program of Debian's package prometheus, and returns once it has scraped the manager twice.
func prometheus(t step.T) (ask func(query string) (series, error)) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not in PATH: the queries of the dashboard are not evaluated")
	}
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := stack.Sallyport.Metrics(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(manager.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	t.Must(err)
	address := free.Addr().String()
	t.Must(free.Close())
	config := fmt.Sprintf(`{global: {scrape_interval: 1s}, scrape_configs: [{job_name: sallyport, static_configs: [{targets: [%q],
		labels: {namespace: sallyport-system, service: sallyport-metrics, pod: sallyport-0, container: manager, endpoint: metrics}}]}]}`,
		strings.TrimPrefix(manager.URL, "http://"))
	folder := t.TempDir()
	file := filepath.Join(folder, "prometheus.yml")
	t.Must(os.WriteFile(file, []byte(strings.ReplaceAll(config, "\t", "")), 0o600))
	var log strings.Builder
	server := exec.CommandContext(t.Context(), path, "--config.file", file, "--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", address)
	server.Stdout, server.Stderr = &log, &log
	t.Must(server.Start())
	t.Cleanup(func() {
		if _ = server.Wait(); t.Failed() {
			t.Log(log.String())
		}
	})
	ask = func(query string) (series, error) {
		response, err := http.Get("http://" + address + "/api/v1/query?" + url.Values{"query": {query}}.Encode())
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		var answer struct {
			Error string
			Data  struct{ Result series }
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		if err == nil && answer.Error != "" {
			err = fmt.Errorf("%s: %s", query, answer.Error)
		}
		return answer.Data.Result, err
	}
	t.Until("Prometheus has scraped the manager twice", func() (string, bool) {
		twice, err := ask("count_over_time(sallyport_build_info[1m]) > 1")
		return fmt.Sprint(err), len(twice) > 0
	})
	return ask
}
