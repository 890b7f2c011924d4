/** As shares.c. */
public class Shares {
  static long heavy(long n) {
    long s = 1;
    for (long i = 0; i < n; i++) s = (s * 31 + i) % 1000003;
    return s;
  }

  static long light(long n) {
    long s = 2;
    for (long i = 0; i < n; i++) s = (s * 17 + i) % 1000033;
    return s;
  }

  static double now() {
    return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() / 1e9;
  }

  public static void main(String[] args) {
    double[] spent = new double[2];
    double end = Double.parseDouble(args[0]);
    long sink = 0;
    for (double a = now(); a < end; ) {
      sink += heavy(300000);
      double b = now();
      spent[0] += b - a;
      sink += light(100000);
      a = now();
      spent[1] += a - b;
    }
    System.out.println(spent[0] / (spent[0] + spent[1]));
    if (sink == 1) System.out.println(sink);
  }
}
