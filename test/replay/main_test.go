package replay

import (
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/test/env/install"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.NewKlogr())
	install.Main(m)
}
