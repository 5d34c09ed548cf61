package chart

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/test/support/env"
	"sallyport.dev/sallyport/test/support/env/install"
)

// TestFaults takes away what replicas need: the API server that they use while another one goes on asking them, etcd, the leader, and both
// replicas at once. Leases of 3 seconds play those of 15, so that 2 minutes are as many of them as 10.
func TestFaults(t *testing.T) {
	if minutes() == 0 {
		t.Skip("left to make test-faults")
	}
	s := newCertSite(t, longer)
	s.traffic = s.startTraffic()
	t.Cleanup(s.table)
	s.step("nothing is wrong", faults{}, func(s *certSite) { s.lasts(5 * time.Second) })
	s.step("the leader is killed", faults{killed: 4}, func(s *certSite) {
		leader := s.leading()
		m, err := s.Kubelet.Manager(leader)
		s.Must(err)
		s.Must(m.Kill())
		s.leads(leader)
	})
	s.step("the API server is restarted", faults{away: true}, func(s *certSite) {
		s.Must(s.Plane.RestartAPIServer(s.Context(), 0))
		s.leads("")
	})
	s.step("all replicas lose the API server for 2 minutes", faults{away: true}, func(s *certSite) {
		s.Must(s.Plane.RestartAPIServer(s.Context(), 2*time.Minute))
		s.leads("")
	})
	s.step("etcd is paused for 20 s", faults{both: true}, func(s *certSite) {
		resume, err := s.Plane.Pause(env.Etcd)
		s.Must(err)
		time.Sleep(20 * time.Second)
		s.Must(resume())
		s.leads("")
	})
	s.step("both replicas are killed at once", faults{killed: 1000}, func(s *certSite) {
		for _, name := range s.Kubelet.Replicas() {
			m, err := s.Kubelet.Manager(name)
			s.Must(err)
			s.Must(m.Kill())
		}
		s.leads("")
	})
	s.step("nothing is wrong any more", faults{}, func(s *certSite) { s.lasts(5 * time.Second) })
}

// leading returns the name of the replica that leads, as its Lease says, and whether it renewed that in the last seconds.
func (s *certSite) leading() string {
	leases, err := s.clientset.CoordinationV1().Leases(install.Namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for _, lease := range leases.Items {
		holder := lease.Spec.HolderIdentity
		if holder == nil || lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > 3*time.Second {
			continue
		}
		for _, name := range s.Kubelet.Replicas() {
			if lease.Labels["sallyport.dev/replica"] == "" && len(*holder) >= len(name) && (*holder)[:len(name)] == name {
				return name
			}
		}
	}
	return ""
}

// leads waits until a replica leads, and both are ready and serve the same certificate.
func (s *certSite) leads(not string) {
	s.Helper()
	s.Until("another replica leads", func() (string, bool) {
		leader := s.leading()
		return leader, leader != "" && leader != not
	})
	s.Until("both replicas are ready", func() (string, bool) {
		ready := 0
		for _, name := range s.Kubelet.Replicas() {
			if m, err := s.Kubelet.Manager(name); err == nil && m.Backend().Ready(s.Context()) {
				ready++
			}
		}
		return fmt.Sprint(ready), ready == 2
	})
	s.Until("both replicas report the certificate", func() (string, bool) {
		found, err := install.ReadCertificates(s.Context(), s.clientset)
		if err != nil {
			return err.Error(), false
		}
		want := s.current(own)
		return fmt.Sprintf("%+v", found), slices.Equal(found.Served, []string{want, want})
	})
}
