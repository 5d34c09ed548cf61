package plugin

import (
	"testing"
)

// The certificate that replicas serve, and who trusts it, can be seen without reading the cluster's objects by hand.
func TestWhyCertificate(t *testing.T) {
	tm := newTeam(t)
	tm.sallyport("why certificate", 0, "Certificate of the webhooks in namespace sallyport-system", "sallyport-certificate: issued by",
		"valid until", "trusted by all webhook configurations", "serves sallyport-certificate")
	tm.sallyport("why certificate -o json", 0, `"mode": "auto"`, `"name": "sallyport-certificate"`)
	tm.sallyport("why certificate --as "+tm.namespace+"-nobody", 1, "finding the certificate of the webhooks")
}
