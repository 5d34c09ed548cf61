package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/test/support/env"
)

// Main runs the tests of a package for which env.Shared has the definitions of our kinds, and no manager. Controllers log nothing.
func Main(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	crds, err := charts.CRDs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	env.Main(m, env.Options{CRDs: crds})
}

// Shared returns a client of env.Shared, and a new namespace whose name begins with a prefix.
func Shared(t testing.TB, prefix string) (api client.WithWatch, namespace string) {
	t.Helper()
	api, err := Client(env.Shared(t).Config)
	o := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err == nil {
		err = api.Create(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return api, o.Name
}

// clients are those that Client has given, by their *rest.Config: each would ask its API server anew what it serves.
var clients sync.Map

// Client gives a client that knows our kinds and Kubernetes' own, as fast as it is used.
func Client(config *rest.Config) (client.WithWatch, error) {
	if known, ok := clients.Load(config); ok {
		return known.(client.WithWatch), nil
	}
	c, err := newClient(config)
	if err == nil {
		clients.Store(config, c)
	}
	return c, err
}

// Watched returns a reader of the objects of a namespace, or of all namespaces if that is empty, which keeps copies of the kinds that it is
// asked for and updates them by watches until the context ends. It is for what looks again and again.
func Watched(ctx context.Context, config *rest.Config, namespace string) (client.Reader, error) {
	o := cache.Options{}
	if namespace != "" {
		o.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	watched, err := cache.New(config, o)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	go func() { _ = watched.Start(ctx) }() // until the context ends, or a read fails
	return watched, nil
}

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}
