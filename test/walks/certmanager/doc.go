// Package certmanager has cert-manager's own controllers and its cainjector issue and announce the certificate of an installed Sallyport,
// while requests are made through two API servers: make test-cert-manager. It also takes away what replicas need: make test-faults.
package certmanager
